// The programs of the rows over Go's channels, one to a process.
//
//	channel-bench-go WORK PARTIES ROUNDS
//
// Runs a tenth to warm up, then all, and prints what it received in order and intact, and how long
// that took, as one line of JSON. GOMAXPROCS says how many threads run Go.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const (
	ringCapacity   = 16
	streamCapacity = 1024
	amount         = 100
	giveUpAfter    = 2 * time.Minute
)

type size struct{ parties, rounds uint64 }

type measured struct {
	Messages    uint64  `json:"messages"`
	Nanoseconds int64   `json:"nanoseconds"`
	Bytes       *uint64 `json:"bytes"`
}

var works = map[string]func(size) measured{
	"TaskPingPong": timed(pingPong),
	"TaskRing":     timed(ring),
	"TokenRing":    timed(tokenRing),
	"TaskGather":   timed(gather),
	"TaskStream":   timed(stream),
	"Whispers":     timed(whispers),
	"IdlePipe":     idlePipe,
}

func main() {
	time.AfterFunc(giveUpAfter, func() { fail("not done after %v", giveUpAfter) })
	if len(os.Args) != 4 {
		fail("usage: channel-bench-go WORK PARTIES ROUNDS")
	}
	work, known := works[os.Args[1]]
	if !known {
		fail("no work is called %q", os.Args[1])
	}
	all := size{number(os.Args[2]), number(os.Args[3])}
	work(size{all.parties, (all.rounds + 9) / 10})
	if err := json.NewEncoder(os.Stdout).Encode(work(all)); err != nil {
		fail("%v", err)
	}
}

func timed(program func(size) uint64) func(size) measured {
	return func(s size) measured {
		begin := time.Now()
		messages := program(s)
		return measured{Messages: messages, Nanoseconds: time.Since(begin).Nanoseconds()}
	}
}

func pingPong(s size) (messages uint64) {
	ask, answer := make(chan uint64, 1), make(chan uint64, 1)
	go func() {
		for value := range ask {
			answer <- value + 1
		}
	}()
	for value := uint64(0); value < s.rounds; value++ {
		ask <- value
		if <-answer == value+1 {
			messages++
		}
	}
	close(ask)
	return messages
}

func ring(s size) (messages uint64) {
	channels := channels(s.parties, ringCapacity)
	counts := make(chan uint64, s.parties)
	for party := range channels {
		to, from := channels[party], channels[(party+len(channels)-1)%len(channels)]
		go func() {
			count := uint64(0)
			for value := uint64(0); value < s.rounds; value++ {
				to <- value
				if <-from == value {
					count++
				}
			}
			counts <- count
		}()
	}
	for range channels {
		messages += <-counts
	}
	return messages
}

func tokenRing(s size) (messages uint64) {
	channels := channels(s.parties, 1)
	counts := make(chan uint64, s.parties)
	// Whoever receives 1 stops; then each finds its neighbour gone.
	channels[0] <- s.parties * s.rounds
	for party := range channels {
		to, from := channels[party], channels[(party+len(channels)-1)%len(channels)]
		go func() {
			count := uint64(0)
			for value := range from {
				count++
				if value == 1 {
					break
				}
				to <- value - 1
			}
			close(to)
			counts <- count
		}()
	}
	for range channels {
		messages += <-counts
	}
	return messages
}

func gather(s size) (messages uint64) {
	numbers := make(chan uint64, streamCapacity)
	var senders sync.WaitGroup
	for party := uint64(0); party < s.parties; party++ {
		senders.Add(1)
		go func() {
			defer senders.Done()
			for round := uint64(0); round < s.rounds; round++ {
				numbers <- amount
			}
		}()
	}
	go func() {
		senders.Wait()
		close(numbers)
	}()
	sum := uint64(0)
	for number := range numbers {
		sum += number
	}
	return sum / amount
}

func stream(s size) (messages uint64) {
	numbers := make(chan uint64, streamCapacity)
	go func() {
		for value := uint64(0); value < s.rounds; value++ {
			numbers <- value
		}
		close(numbers)
	}()
	for value := range numbers {
		if value == messages {
			messages++
		}
	}
	return messages
}

func whispers(s size) (messages uint64) {
	for round := uint64(0); round < s.rounds; round++ {
		left := make(chan uint64)
		end := left
		for link := uint64(1); link < s.parties; link++ {
			right := make(chan uint64)
			go func(left, right chan uint64) { left <- <-right + 1 }(left, right)
			left = right
		}
		go func() { left <- 1 }()
		messages += <-end
	}
	return messages
}

func idlePipe(s size) measured {
	pipes := make([]chan uint64, s.parties)
	before := heap()
	for index := range pipes {
		pipes[index] = make(chan uint64, 1)
		pipes[index] <- 7
		<-pipes[index]
	}
	bytes := heap() - before
	runtime.KeepAlive(pipes)
	return measured{Messages: s.parties * s.rounds, Bytes: &bytes}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func channels(count uint64, capacity int) []chan uint64 {
	list := make([]chan uint64, count)
	for index := range list {
		list[index] = make(chan uint64, capacity)
	}
	return list
}

func number(text string) uint64 {
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		fail("%v", err)
	}
	return value
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}
