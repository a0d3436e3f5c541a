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

// Settings are the server that receives the statistics and the form in which they are written.
type Settings struct {
	Network string // "tcp" or "udp", or one of them over one version of the internet protocol, such as "udp4"
	Address string // host:port
	// Tags are added to every name, either as gostats writes them, ".__NAME=VALUE" after the name, or in DogStatsD's
	// form.
	Tags map[string]string
	Dog  bool
	// DogTags are further tags in DogStatsD's form, NAME:VALUE, which are sent unchanged.
	DogTags []string
	// NameContainer adds to every line in DogStatsD's form which container it comes from, if there is one.
	NameContainer bool
}

const (
	// longestFlush bounds the wait for a server that hangs.
	longestFlush = 2 * time.Second
	// A datagram should not be fragmented on the way. A write to a stream may be longer.
	longestDatagram = 1432
	longestWrite    = 64 << 10
	// longestLine bounds a line. Longer lines are not sent, because a line that can never be sent would block every
	// line after it.
	longestLine = 8 << 10
)

// Sender sends the differences since its last flush. If a flush fails, the next one sends its counts too: the sender
// keeps only one number per counter. A Sender must not be used concurrently.
type Sender struct {
	settings Settings
	from     *stats.Set
	tags     string

	sent  map[string]uint64 // total sent so far, by name
	times [stats.Times]uint64
}

// New returns a sender of statistics.
func New(settings Settings, from *stats.Set) *Sender {
	tags := settings.tags()
	if settings.Dog && settings.NameContainer {
		if of := container(); of != "" {
			tags += "|c:" + of
		}
	}
	return &Sender{settings: settings, from: from, tags: tags, sent: make(map[string]uint64)}
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

// Flush sends what has been counted since the last flush. Once it has computed the differences, it takes two seconds
// at most. Each flush opens a connection of its own, so that it finds a server that has moved or restarted.
func (s *Sender) Flush(ctx context.Context) error {
	changes := s.changes() // with many names, this takes seconds on a busy machine
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
	if strings.HasPrefix(s.settings.Network, "udp") {
		f.most = longestDatagram
	}
	for _, c := range changes {
		f.line(s.text(c.name, strconv.FormatUint(c.value-s.sent[c.name], 10), "|c"), func() { s.sent[c.name] = c.value })
	}
	s.responseTimes(&f)
	f.write()
	return f.err
}

// change is a counter that has grown since it was last sent.
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
		case value < before: // counts of one of the limits with this name are no longer kept
			s.sent[name] = value
		}
	})
	if names < len(s.sent) {
		s.forget()
	}
	return all
}

// forget removes the names that are no longer kept.
func (s *Sender) forget() {
	kept := make(map[string]uint64, len(s.sent))
	s.from.Each(func(name string, _ uint64) {
		if value, known := s.sent[name]; known {
			kept[name] = value
		}
	})
	s.sent = kept
}

// responseTimes sends one line for each bucket of the histogram instead of one for each call. A line has the bucket's
// bound, and its sample rate tells how many calls it stands for.
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

// flush collects lines into as few writes as their lengths allow.
type flush struct {
	connection net.Conn
	most       int
	gathered   []byte
	then       []func() // called after the collected lines have been written
	err        error    // of the first failed write; nothing is written after it
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
