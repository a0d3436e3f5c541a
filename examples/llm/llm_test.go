package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/tiered"
)

// asProgram is the environment variable that makes the test binary run as the program.
const asProgram = "LLM_EXAMPLE"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	redistest.Main(m)
}

const tenant, organisation = "acme/search", "acme"

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 30*time.Second {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// free returns what a rule has left for a key.
func free(t *testing.T, r *tiered.Rule, key string) int64 {
	t.Helper()
	d, err := r.Peek(context.Background(), key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// ask asks for a completion. The caller must read the answer to its end, or close it.
func ask(t *testing.T, url, prompt string, most int) *http.Response {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, fmt.Sprintf("%s/complete?max=%d", url, most), strings.NewReader(prompt))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Tenant", tenant)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// must asks for a completion that must be granted, and reads its first token.
func must(t *testing.T, url, prompt string, most int) *http.Response {
	t.Helper()
	answer := ask(t, url, prompt, most)
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	if line, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Fatalf("%q, %v", line, err)
	}
	return answer
}

// mustDeny asks for a completion that must be denied, by one limit.
func mustDeny(t *testing.T, url string, most int, by string) {
	t.Helper()
	answer := ask(t, url, "hello you", most)
	defer answer.Body.Close()
	var said struct {
		DeniedBy []string `json:"denied_by"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil || answer.StatusCode != http.StatusTooManyRequests ||
		answer.Header.Get("Retry-After") == "" || !slices.Equal(said.DeniedBy, []string{by}) {
		t.Errorf("%s, %v, %v, want a denial by %s", answer.Status, said, err, by)
	}
}

// start starts a proxy inside the test, without a Redis.
func start(t *testing.T, l limits, pause time.Duration) (*proxy, string) {
	t.Helper()
	limiter, stop, err := connect.Limiter("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	model, stopModel, err := startModel(pause)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stopModel)
	p, err := newProxy(limiter, l, model)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p.routes())
	t.Cleanup(server.Close)
	return p, server.URL
}

// The used tokens are charged, whether they are fewer or more than were held. A request that one limit
// denies is charged to no limit.
func TestWhatWasUsedIsCharged(t *testing.T) {
	l := defaults
	l.requests, l.tokens, l.expected, l.streams = 4, 100, 20, 1
	p, url := start(t, l, 0)
	check := func(when string, tokens int64) {
		t.Helper()
		eventually(t, when+" no stream is held", func() bool { return free(t, p.streams, tenant) == 1 })
		if a, b := free(t, p.tokens, tenant), l.budget-free(t, p.budget, organisation); a != tokens || b != 100-tokens {
			t.Errorf("%s %d tokens are free, want %d; %d of the budget are used", when, a, tokens, b)
		}
	}
	for _, c := range []struct {
		max  int
		left int64
	}{{10, 88}, {40, 46}} {
		text, err := io.ReadAll(must(t, url, "hello you", c.max).Body)
		if err != nil || strings.Count(string(text), "data: ") > c.max {
			t.Fatalf("%q, %v", text, err)
		}
		check(fmt.Sprint("after ", c.max), c.left)
	}
	if answer := ask(t, url, "", 10); answer.StatusCode != http.StatusBadGateway {
		t.Errorf("refused by the model: %s", answer.Status)
	}
	check("after what the model refused", 46)
	if free := free(t, p.requests, tenant); free != 1 {
		t.Errorf("%d requests are left", free)
	}
	answer := must(t, url, "hello you", 1) // uses the last request
	_ = answer.Body.Close()
	check("after the last", 43)
	mustDeny(t, url, 1, "requests")
	check("after a denial", 43)
}

// A client that hangs up pays for the tokens that the model has sent, and no more, and its stream ends.
func TestTheClientHangsUp(t *testing.T) {
	l := defaults
	l.streams = 1
	p, url := start(t, l, 5*time.Millisecond)
	answer := must(t, url, "hello you", 100_000)
	if left := free(t, p.tokens, tenant); left != l.tokens-202 {
		t.Errorf("%d tokens are free, want 202 less than %d", left, l.tokens)
	}
	mustDeny(t, url, 10, "streams")
	_ = answer.Body.Close()
	eventually(t, "the stream ends", func() bool { return free(t, p.streams, tenant) == 1 })
	used := l.tokens - free(t, p.tokens, tenant)
	if used < 3 || l.budget-free(t, p.budget, organisation) != used {
		t.Errorf("%d tokens are charged, and %d of the budget", used, l.budget-free(t, p.budget, organisation))
	}
	mustHaveEnded(t, p.limiter)
}

// An answer that breaks off does not look complete, and the tokens used by it are charged.
func TestTheModelBreaksOff(t *testing.T) {
	p, url := start(t, defaults, 0)
	model, stopModel, err := startModel(5 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	p.model = model
	answer := must(t, url, "hello you", 100_000)
	stopModel()
	if _, err := io.Copy(io.Discard, answer.Body); err == nil {
		t.Error("the answer ended as if it were whole")
	}
	_ = answer.Body.Close()
	mustHaveEnded(t, p.limiter)
	if used := defaults.tokens - free(t, p.tokens, tenant); used < 3 {
		t.Errorf("%d tokens are charged", used)
	}
}

// Flags with which no request could be made are reported at the start.
func TestWrongFlags(t *testing.T) {
	limiter, stop, err := connect.Limiter("")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for want, wrong := range map[string]func(*limits){
		"-life is 0s":    func(l *limits) { l.life = 0 },
		"-life is 48h":   func(l *limits) { l.life = 48 * time.Hour },
		"-expected is 0": func(l *limits) { l.expected = 0 },
	} {
		l := defaults
		wrong(&l)
		if _, err := newProxy(limiter, l, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func mustHaveEnded(t *testing.T, l *tiered.Limiter) {
	t.Helper()
	eventually(t, "nothing is held", func() bool { s := l.Stats(); return s.Holds.Open == 0 && s.Holds.Unsettled == 0 })
}

// launch starts the program in a process of its own.
func launch(t *testing.T, args ...string) (program *exec.Cmd, url string) {
	t.Helper()
	program = exec.Command(os.Args[0], append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	program.Env = append(os.Environ(), asProgram+"=1")
	program.Stderr = os.Stderr
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Process.Kill(); _ = program.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return program, "http://" + strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// A process that is killed in the middle of streams leaves nothing behind. Its streams are free within
// their TTL plus a second. Its holds end as the rules say, within their life plus a second: the tokens
// of the minute are given back, and those of the budget stay charged.
func TestKilledInTheMiddleOfStreams(t *testing.T) {
	l := defaults
	l.streams, l.life, l.slotTTL = 2, 3*time.Second, 2*time.Second
	server := redistest.Start(t)
	args := []string{
		"-redis", server.URL(), "-pause", "20ms", "-streams", "2",
		"-life", l.life.String(), "-slot-ttl", l.slotTTL.String(),
	}
	program, url := launch(t, args...)
	limiter, stop, err := connect.Limiter(server.URL(), tiered.Deadline(5*time.Second), tiered.RememberDenials(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	watched, err := newProxy(limiter, l, "")
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	var streams []*http.Response
	for range 2 {
		streams = append(streams, must(t, url, "hello you", 100_000))
	}
	const held = 2 * 202
	mustDeny(t, url, 10, "streams")
	// Holds are extended while the answers stream, and streams stay held.
	for time.Since(began) < l.life+time.Second {
		if a, b := free(t, watched.tokens, tenant), free(t, watched.streams, tenant); a != l.tokens-held || b != 0 {
			t.Fatalf("after %v %d tokens and %d streams are free", time.Since(began), a, b)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait()
	killed := time.Now()
	for _, answer := range streams {
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}

	_, url = launch(t, args...)
	// The loop fails if a check that begins after the given time still finds units held.
	freeWithin := func(what string, r *tiered.Rule, all int64, within time.Duration) {
		t.Helper()
		for {
			looked := time.Since(killed)
			if free(t, r, tenant) == all {
				t.Logf("%s were free %v after the process was killed", what, looked.Round(time.Millisecond))
				return
			}
			if looked > within {
				t.Fatalf("%s are held %v after the process was killed, want %v at most", what, looked, within)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	freeWithin("streams", watched.streams, 2, l.slotTTL+time.Second)
	freeWithin("the tokens of the minute", watched.tokens, l.tokens, l.life+time.Second)
	if used := l.budget - free(t, watched.budget, organisation); used != held {
		t.Errorf("%d tokens of the budget are charged, want the %d that were held", used, held)
	}

	// The new process continues as if nothing had happened.
	for range 2 {
		streams = append(streams, must(t, url, "hello you", 100_000))
	}
	mustDeny(t, url, 10, "streams")
	for _, answer := range streams {
		_ = answer.Body.Close()
	}
	eventually(t, "the streams end", func() bool { return free(t, watched.streams, tenant) == 2 })
}

// One request, without a Redis.
func Example() {
	limiter, stop, err := connect.Limiter("")
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	model, stopModel, err := startModel(time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	defer stopModel()
	p, err := newProxy(limiter, defaults, model)
	if err != nil {
		log.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodPost, "/complete?max=4", strings.NewReader("so it goes"))
	request.Header.Set("X-Tenant", tenant)
	answer := httptest.NewRecorder()
	p.routes().ServeHTTP(answer, request)
	fmt.Println(strings.Fields(strings.ReplaceAll(answer.Body.String(), "data:", "")))
	d, err := p.tokens.Peek(context.Background(), tenant, 1)
	fmt.Println(d.Limit-d.Remaining, "tokens were used", err)
	// Output:
	// [so it goes so]
	// 7 tokens were used <nil>
}
