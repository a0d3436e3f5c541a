// Package statsd sends the statistics of a rate limit service to a statsd server, under the names
// and with the tags that envoyproxy/ratelimit gives them.
package statsd

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/serve/internal/stats"
)

// Settings say where statistics go, and how they are written.
type Settings struct {
	Network string // "tcp" or "udp"
	Address string // host:port
	// Tags are added to all names: as gostats writes them, ".__NAME=VALUE" behind the name, or
	// as DogStatsD reads them.
	Tags map[string]string
	Dog  bool
	// DogTags are further tags of DogStatsD's form, NAME:VALUE, as they are.
	DogTags []string
}

const (
	// longestFlush bounds how long a server that hangs is waited for.
	longestFlush = 2 * time.Second
	// A datagram should not be divided on the way; a write to a stream may be longer.
	longestDatagram = 1432
	longestWrite    = 64 << 10
	// longestLine bounds a line. Longer ones are not sent: one that can never be would keep back
	// all that come after it.
	longestLine = 8 << 10
)

// Sender sends what has been counted since it sent last. What cannot be sent is kept, as a number
// for each counter, and sent with the next. It is for one goroutine.
type Sender struct {
	settings Settings
	from     *stats.Set
	tags     string

	sent  map[string]uint64 // by name, in all
	times [stats.Times]uint64
}

// New returns a sender of statistics.
func New(settings Settings, from *stats.Set) *Sender {
	return &Sender{settings: settings, from: from, tags: settings.tags(), sent: make(map[string]uint64)}
}

var inTagValue = strings.NewReplacer(".", "_", ":", "_", "|", "_")

func (s *Settings) tags() string {
	var b strings.Builder
	dog := slices.Clone(s.DogTags)
	for _, name := range slices.Sorted(maps.Keys(s.Tags)) {
		value := inTagValue.Replace(s.Tags[name])
		switch {
		case name == "" || value == "":
		case s.Dog:
			dog = append(dog, name+":"+value)
		default:
			b.WriteString(".__" + name + "=" + value)
		}
	}
	if s.Dog && len(dog) > 0 {
		b.WriteString("|#" + strings.Join(dog, ","))
	}
	return b.String()
}

// Flush sends what is new. It takes two seconds at most, once it knows what that is. Each flush has a
// connection of its own: a server that has moved or has begun anew is found again.
func (s *Sender) Flush(ctx context.Context) error {
	changes := s.changes() // of many names, which takes a busy machine seconds
	ctx, cancel := context.WithTimeout(ctx, longestFlush)
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, s.settings.Network, s.settings.Address)
	if err != nil {
		return err
	}
	defer connection.Close()
	deadline, _ := ctx.Deadline()
	if err := connection.SetDeadline(deadline); err != nil {
		return err
	}
	return s.send(connection, changes)
}

func (s *Sender) send(connection net.Conn, changes []change) error {
	f := flush{connection: connection, most: longestWrite}
	if s.settings.Network == "udp" {
		f.most = longestDatagram
	}
	for _, c := range changes {
		f.line(s.text(c.name, strconv.FormatUint(c.value-s.sent[c.name], 10), "|c"), func() { s.sent[c.name] = c.value })
	}
	s.responseTimes(&f)
	f.write()
	return f.err
}

// change is a counter that has become larger since it was sent.
type change struct {
	name  string
	value uint64
}

func (s *Sender) changes() (all []change) {
	names := 0
	s.from.Each(func(name string, value uint64) {
		before, known := s.sent[name]
		if known {
			names++
		}
		switch {
		case value > before:
			all = append(all, change{name, value})
		case value < before: // what was counted under one of its names is no longer kept
			s.sent[name] = value
		}
	})
	if names < len(s.sent) {
		s.forget()
	}
	return all
}

// forget forgets names that are no longer kept.
func (s *Sender) forget() {
	kept := make(map[string]uint64, len(s.sent))
	s.from.Each(func(name string, _ uint64) {
		if value, known := s.sent[name]; known {
			kept[name] = value
		}
	})
	s.sent = kept
}

// responseTimes sends a line for each bucket of the histogram in place of one for each call: the
// bucket's bound, and by the sample rate for how many calls it stands.
func (s *Sender) responseTimes(f *flush) {
	for i, bucket := range s.from.ResponseTime.Buckets() {
		calls := bucket.Count - s.times[i]
		if calls == 0 {
			continue
		}
		kind := "|ms"
		if calls > 1 {
			kind += "|@" + strconv.FormatFloat(1/float64(calls), 'f', -1, 64)
		}
		ms := strconv.FormatFloat(bucket.Bound.Seconds()*1000, 'f', -1, 64)
		f.line(s.text("ratelimit_server.ShouldRateLimit.response_time", ms, kind), func() { s.times[i] = bucket.Count })
	}
}

func (s *Sender) text(name, value, kind string) string {
	if s.settings.Dog {
		return fmt.Sprintf("%s:%s%s%s\n", name, value, kind, s.tags)
	}
	return fmt.Sprintf("%s%s:%s%s\n", name, s.tags, value, kind)
}

// flush gathers lines into as many writes as are needed.
type flush struct {
	connection net.Conn
	most       int
	gathered   []byte
	then       []func() // once what is gathered has been written
	err        error    // of the first write that failed: nothing is written after it
}

func (f *flush) line(text string, written func()) {
	if len(text) > longestLine {
		return
	}
	if len(f.gathered)+len(text) > f.most {
		f.write()
	}
	f.gathered = append(f.gathered, text...)
	f.then = append(f.then, written)
}

func (f *flush) write() {
	if f.err == nil && len(f.gathered) > 0 {
		if _, f.err = f.connection.Write(f.gathered); f.err == nil {
			for _, written := range f.then {
				written()
			}
		}
	}
	f.gathered, f.then = f.gathered[:0], f.then[:0]
}
