// peer-mochi serves MQTT with the library mochi on a port of the loopback, for `cargo xtask bench brokers`.
package main

import (
	"fmt"
	"log"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
)

// A subscriber of the benchmark has up to 20,000 messages under way at QoS 0; with the library's
// own limit of 8,192 it would lose some.
const writesPending = 1 << 15

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: peer-mochi PORT | --version")
	}
	if os.Args[1] == "--version" {
		fmt.Println(version())
		return
	}
	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumClientWritesPending = writesPending
	capabilities.MaximumInflight = math.MaxUint16
	capabilities.ReceiveMaximum = math.MaxUint16
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	server := mqtt.New(&mqtt.Options{Capabilities: capabilities, Logger: quiet})
	must(server.AddHook(new(auth.AllowHook), nil))
	must(server.AddListener(listeners.NewTCP(listeners.Config{
		ID:      "tcp",
		Address: "127.0.0.1:" + os.Args[1],
	})))
	must(server.Serve())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}

func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range build.Deps {
		if module.Path == "github.com/mochi-mqtt/server/v2" {
			return "mochi " + module.Version + ", " + build.GoVersion
		}
	}
	return "unknown"
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
