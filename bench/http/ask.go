package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// keys is the number of keys that requests are for.
const keys = 100_000

// ask sends requests for span, and prints how many were answered, and how long they took: from the time at which a
// request was due, so that one that had to wait for its connection counts with its wait.
func ask(target string, connections int, rate float64, span time.Duration) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	if u.Scheme != "http" || u.Port() == "" {
		return fmt.Errorf("-ask %q: want the URL of a server with its port, such as http://127.0.0.1:8080/keys", target)
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards the rest
		took  []time.Duration
		other int // answers other than 200
		first error
	)
	began := time.Now()
	until := began.Add(span)
	for range connections {
		wg.Go(func() {
			own, refused, err := askOn(u, rate/float64(connections), until)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			other += refused
			if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	lasted := time.Since(began) // longer than span if answers came more slowly than requests were due
	if first != nil {
		return first
	}
	if len(took) == 0 {
		return fmt.Errorf("no request was due within %v: increase -rate or -for", span)
	}
	slices.Sort(took)
	at := func(part float64) time.Duration {
		return took[int(part*float64(len(took)-1))].Round(time.Microsecond)
	}
	fmt.Printf("%.0f requests/s, p50 %v, p99 %v, p99.9 %v; %d not answered with 200\n",
		float64(len(took))/lasted.Seconds(), at(0.5), at(0.99), at(0.999), other)
	return nil
}

// askOn sends requests on one connection, one after another.
func askOn(u *url.URL, rate float64, until time.Time) (took []time.Duration, other int, err error) {
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	due := time.Now()
	for {
		if rate > 0 {
			due = due.Add(time.Duration(rand.ExpFloat64() / rate * float64(time.Second)))
		} else {
			due = time.Now()
		}
		if due.After(until) {
			return took, other, nil
		}
		time.Sleep(time.Until(due))
		if _, err := fmt.Fprintf(conn, "GET %s?%d HTTP/1.1\r\nHost: %s\r\n\r\n", u.Path, rand.IntN(keys), u.Host); err != nil {
			return nil, 0, err
		}
		ok, err := readAnswer(answers)
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			other++
		}
		took = append(took, time.Since(due))
	}
}

// readAnswer reads an answer of this program's server, and reports whether its status is 200. http.ReadResponse would
// take as much of the processors' time as the server.
func readAnswer(from *bufio.Reader) (ok bool, err error) {
	status, err := from.ReadString('\n')
	if err != nil {
		return false, err
	}
	length := 0
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return false, err
		}
		line = strings.TrimSpace(line)
		if line == "" {
			break
		}
		if value, is := strings.CutPrefix(line, "Content-Length: "); is {
			if length, err = strconv.Atoi(value); err != nil {
				return false, err
			}
		}
	}
	_, err = from.Discard(length)
	return strings.HasPrefix(status, "HTTP/1.1 200 "), err
}
