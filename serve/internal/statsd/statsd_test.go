package statsd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/serve/internal/stats"
)

// listen returns an address, and a channel with the text that each connection to it has sent.
func listen(t *testing.T, address string) (string, <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan string, 100)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			text, _ := io.ReadAll(connection)
			_ = connection.Close()
			sent <- string(text)
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String(), sent
}

func flushed(t *testing.T, s *Sender) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Counters are sent as differences, and unchanged counters are not sent. Response times are sent as buckets with a
// sample rate. Counts from while the server was away are sent when it is back.
func TestFlush(t *testing.T) {
	var set stats.Set
	user := set.Limit("shop.user_10.0.0.1")
	user.TotalHits.Add(3)
	set.ResponseTime.Observe(200 * time.Microsecond)
	for range 4 {
		set.ResponseTime.Observe(2 * time.Millisecond)
	}
	address, sent := listen(t, "127.0.0.1:0")
	s := New(Settings{Network: "tcp", Address: address, Tags: map[string]string{"b": "x.y", "a": "1", "none": ""}}, &set)
	flushed(t, s)
	const name = "ratelimit.service.rate_limit.shop.user_10_0_0_1."
	const tags = ".__a=1.__b=x_y:"
	const times = "ratelimit_server.ShouldRateLimit.response_time" + tags
	if got, want := <-sent, name+"total_hits"+tags+"3|c\n"+times+"0.25|ms\n"+times+"2.5|ms|@0.25\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	user.TotalHits.Add(2)
	user.OverLimit.Add(1)
	s.settings.Address = "127.0.0.1:1"
	if err := s.Flush(t.Context()); err == nil {
		t.Fatal("sent to nobody")
	}
	user.TotalHits.Add(5)
	s.settings.Address = address
	flushed(t, s)
	if got, want := <-sent, name+"over_limit"+tags+"1|c\n"+name+"total_hits"+tags+"7|c\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	flushed(t, s)
	if got := <-sent; got != "" {
		t.Errorf("nothing is new, and sent is\n%s", got)
	}
}

// Datagrams contain whole lines and are not fragmented in a network. A line that is too long does not block others,
// and names from requests cannot make lines of their own.
func TestDatagrams(t *testing.T) {
	connection, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	var set stats.Set
	set.Limit("a." + strings.Repeat("x", longestLine)).TotalHits.Add(1)
	set.Limit("d.evil\nx:1|c").TotalHits.Add(1)
	want := []string{"ratelimit.service.rate_limit.d.evil_x_1_c.total_hits:1|c|#version:1.2,env:a_b,zone:z"}
	for i := range 100 {
		set.Limit(fmt.Sprintf("d.k_%03d", i)).TotalHits.Add(1)
		want = append(want, fmt.Sprintf("ratelimit.service.rate_limit.d.k_%03d.total_hits:1|c|#version:1.2,env:a_b,zone:z", i))
	}
	s := New(Settings{Network: "udp4", Address: connection.LocalAddr().String(), Dog: true, DogTags: []string{"version:1.2"}, Tags: map[string]string{"zone": "z", "env": "a.b"}}, &set)
	flushed(t, s)
	var got []string
	buffer := make([]byte, 1<<16)
	if err := connection.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for len(got) < len(want) {
		n, _, err := connection.ReadFrom(buffer)
		if err != nil {
			t.Fatalf("%d lines: %v", len(got), err)
		}
		if n > 1432 || buffer[n-1] != '\n' {
			t.Errorf("a datagram of %d bytes ends with %q", n, buffer[n-1])
		}
		got = append(got, strings.Split(strings.TrimSuffix(string(buffer[:n]), "\n"), "\n")...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d lines, of which the first is %.100q, want %q", len(got), got[0], want[0])
	}
}

// If a server hangs after it has taken a part, the next flush sends the rest.
func TestServerThatHangs(t *testing.T) {
	var set stats.Set
	const names = 300
	for i := range names { // so many that they need several writes
		set.Limit(fmt.Sprintf("d.%03d_%s", i, strings.Repeat("x", 400))).TotalHits.Add(1)
	}
	s := New(Settings{Network: "tcp"}, &set)
	ours, theirs := net.Pipe()
	taken := make(chan string, 1)
	go func() { // reads one write only
		buffer := make([]byte, longestWrite)
		n, _ := theirs.Read(buffer)
		taken <- string(buffer[:n])
		_ = ours.SetDeadline(time.Now())
	}()
	if err := s.send(ours, s.changes()); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("everything was taken: %v", err)
	}
	first := <-taken
	address, sent := listen(t, "127.0.0.1:0")
	s.settings.Address = address
	flushed(t, s)
	var want strings.Builder
	set.Each(func(name string, value uint64) {
		if value > 0 {
			fmt.Fprintf(&want, "%s:%d|c\n", name, value)
		}
	})
	if first == "" || first+<-sent != want.String() {
		t.Errorf("%d bytes were taken at first; afterwards, what was sent is not the rest", len(first))
	}
}

// Names of former configurations that are no longer kept are forgotten by the sender too. If a name comes back, its
// earlier count is not sent again.
func TestNamesOfFormerConfigurations(t *testing.T) {
	address, sent := listen(t, "127.0.0.1:0")
	var set stats.Set
	sender := New(Settings{Network: "tcp", Address: address}, &set)
	set.InForce([]*stats.Limit{set.Limit("d.first")})
	set.Limit("d.first").TotalHits.Add(7)
	flushed(t, sender)
	if text := <-sent; !strings.Contains(text, "d.first.total_hits:7|c\n") {
		t.Errorf("%q", text)
	}
	for version := range 13 {
		limits := make([]*stats.Limit, 1_000)
		for i := range limits {
			limits[i] = set.Limit(fmt.Sprint("d.k", version, "_", i))
		}
		limits[0].TotalHits.Add(1)
		set.InForce(limits)
	}
	flushed(t, sender)
	<-sent
	for name, want := range map[string]bool{"d.first": false, "d.k0_0": false, "d.k12_0": true} {
		if _, known := sender.sent["ratelimit.service.rate_limit."+name+".total_hits"]; known != want {
			t.Errorf("%s is known: %v", name, known)
		}
	}
	set.Limit("d.first").TotalHits.Add(2)
	flushed(t, sender)
	if text := <-sent; text != "ratelimit.service.rate_limit.d.first.total_hits:2|c\n" {
		t.Errorf("%q", text)
	}
}
