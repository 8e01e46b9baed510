// paho for Go behind the streams described in ../README.md.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/eclipse/paho.mqtt.golang/packets"
)

type will struct {
	Topic   string `json:"topic"`
	Payload string `json:"payload"`
}

type command struct {
	Do       string `json:"do"`
	Port     int    `json:"port"`
	Version  string `json:"version"`
	ID       string `json:"id"`
	Clean    bool   `json:"clean"`
	User     string `json:"user"`
	Password string `json:"password"`
	Will     *will  `json:"will"`
	Scheme   string `json:"scheme"`
	Socket   string `json:"socket"`
	CA       string `json:"ca"`
	Cert     string `json:"cert"`
	Key      string `json:"key"`
	Filter   string `json:"filter"`
	Topic    string `json:"topic"`
	Payload  string `json:"payload"`
	QoS      byte   `json:"qos"`
	Retain   bool   `json:"retain"`
}

type event map[string]any

var (
	client mqtt.Client
	output sync.Mutex
)

func tell(name string, fields event) {
	output.Lock()
	defer output.Unlock()
	if fields == nil {
		fields = event{}
	}
	fields["event"] = name
	line, err := json.Marshal(fields)
	if err == nil {
		fmt.Println(string(line))
	}
}

func fail(err error) {
	tell("error", event{"text": err.Error()})
}

// address is a URL in the words of the library.
func address(c command) string {
	switch c.Scheme {
	case "ws", "wss":
		return fmt.Sprintf("%s://localhost:%d/mqtt", c.Scheme, c.Port)
	case "mqtts":
		return fmt.Sprintf("ssl://localhost:%d", c.Port)
	case "unix":
		return "unix://" + c.Socket
	default:
		return fmt.Sprintf("tcp://127.0.0.1:%d", c.Port)
	}
}

// security trusts the authority alone, and shows the client's certificate if it has one.
func security(c command) (*tls.Config, error) {
	authority, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, errors.New("no certificate in " + c.CA)
	}
	if c.Cert != "" {
		own, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func connect(c command) {
	options := mqtt.NewClientOptions().
		AddBroker(address(c)).
		SetClientID(c.ID).
		SetCleanSession(c.Clean).
		SetAutoReconnect(false).
		SetUsername(c.User).
		SetPassword(c.Password)
	switch c.Version {
	case "3.1":
		options.SetProtocolVersion(3)
	case "3.1.1":
		options.SetProtocolVersion(4)
	default:
		fail(errors.New("this library speaks 3.1 and 3.1.1"))
		return
	}
	if c.CA != "" {
		config, err := security(c)
		if err != nil {
			fail(err)
			return
		}
		options.SetTLSConfig(config)
	}
	if c.Will != nil {
		options.SetWill(c.Will.Topic, c.Will.Payload, 1, false)
	}
	options.SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) {
		tell("message", event{
			"topic":   m.Topic(),
			"payload": string(m.Payload()),
			"qos":     m.Qos(),
			"retain":  m.Retained(),
		})
	})
	client = mqtt.NewClient(options)
	token := client.Connect().(*mqtt.ConnectToken)
	token.Wait()
	if err := token.Error(); err != nil {
		if token.ReturnCode() >= packets.ErrRefusedBadProtocolVersion &&
			token.ReturnCode() <= packets.ErrRefusedNotAuthorised {
			tell("refused", event{"code": token.ReturnCode()})
		} else {
			fail(err)
		}
		return
	}
	tell("connected", event{"session": token.SessionPresent()})
}

// done waits for the answer to a request and tells of it.
func done(token mqtt.Token, name string, fields func() event) {
	token.Wait()
	if err := token.Error(); err != nil {
		fail(err)
		return
	}
	tell(name, fields())
}

func handle(c command) {
	none := func() event { return nil }
	switch c.Do {
	case "connect":
		connect(c)
	case "subscribe":
		token := client.Subscribe(c.Filter, c.QoS, nil)
		done(token, "subscribed", func() event {
			return event{"code": token.(*mqtt.SubscribeToken).Result()[c.Filter]}
		})
	case "unsubscribe":
		done(client.Unsubscribe(c.Filter), "unsubscribed", none)
	case "publish":
		done(client.Publish(c.Topic, c.QoS, c.Retain, c.Payload), "published", none)
	case "disconnect":
		client.Disconnect(250)
		tell("disconnected", nil)
	}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fail(err)
			continue
		}
		handle(c)
	}
}
