package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// fails runs a command, which must fail with an error that has all of the words.
func fails(t *testing.T, args []string, words ...string) {
	t.Helper()
	_, _, err := command(t, nil, args...)
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: the error is %v, and should say %q", args, err, word)
		}
	}
}

// failsAtOnce is fails for a command that works for minutes, or until it is interrupted, if it does not find the mistake
// at its start.
func failsAtOnce(t *testing.T, args []string, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var stdout bytes.Buffer
	err := run(ctx, args, iotest.ErrReader(errors.New("the log is read")), &stdout, io.Discard)
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: the error is %v, and should say %q", args, err, word)
		}
	}
	if stdout.Len() > 0 {
		t.Errorf("%q begins: %s", args, &stdout)
	}
}

// A server that refuses the command's user is an error that says what to write into the URL.
func TestRefusedUsers(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	for _, call := range [][]any{
		{"ACL", "SETUSER", "look", "on", ">pw", "~tl:*", "+get", "+pttl", "+time", "+zrange", "+scan"},
		{"ACL", "SETUSER", "nobody", "on", ">pw", "~other:*", "+get"},
		{"CONFIG", "SET", "requirepass", "secret"},
	} {
		if err := client.Do(t.Context(), call...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	admin := "redis://:secret@" + server.Addr()
	for _, command := range []string{"show", "top", "plan", "report", "replay", "demo"} {
		args := map[string][]string{"show": {"search", "alice"}, "top": {"search"}, "demo": {"-addr", "127.0.0.1:0"}}[command]
		with := func(url string) []string { return append([]string{command, "-redis", url}, args...) }
		fails(t, with("redis://"+server.Addr()), "NOAUTH", "redis://:PASSWORD@host:6379")
	}
	fails(t, []string{"replay", "-redis", "redis://secret@" + server.Addr()}, "NOAUTH", "redis://:PASSWORD@host:6379")
	fails(t, []string{"show", "-redis", "redis://:wrong@" + server.Addr(), "search", "alice"}, "WRONGPASS", "check the user and the password", "percent-encoded")
	fails(t, []string{"show", "-redis", admin + "/99", "search", "alice"}, "DB index is out of range", "behind the last slash")
	says(t, []string{"show", "-redis", admin, "search", "alice"}, "state none")

	for _, args := range [][]string{{"show", "-redis", "redis://nobody:pw@" + server.Addr(), "search", "alice"}, {"top", "-redis", "redis://nobody:pw@" + server.Addr(), "search"}} {
		fails(t, args, "NOPERM", "~tl:* +get +pttl +time +zrange +scan")
	}
	fails(t, []string{"plan", "-redis", "redis://look:pw@" + server.Addr()}, "NOPERM", "a Redis for trials")
	for _, user := range []string{"nobody", "look"} {
		url := "redis://" + user + ":pw@" + server.Addr()
		failsAtOnce(t, []string{"report", "-redis", url, "-"}, "NOPERM", "a Redis for trials")
		failsAtOnce(t, []string{"demo", "-addr", "127.0.0.1:0", "-redis", url}, "NOPERM", "a Redis for trials")
	}
	says(t, []string{"show", "-redis", "redis://look:pw@" + server.Addr(), "search", "alice"}, "state none")
	says(t, []string{"top", "-redis", "redis://look:pw@" + server.Addr(), "search"}, "0 keys")
}

// A connection with TLS that fails is an error that says what to change.
func TestRefusedTLS(t *testing.T) {
	server := redistest.StartTLS(t)
	fails(t, []string{"show", "-redis", "redis://" + server.TLSAddr, "search", "alice"}, "rediss://")
	fails(t, []string{"replay", "-redis", "redis://" + server.TLSAddr}, "rediss://")
	fails(t, []string{"show", "-redis", "rediss://" + server.TLSAddr, "search", "alice"}, "SSL_CERT_FILE", "?skip_verify=true")
	fails(t, []string{"show", "-redis", "rediss://" + server.Addr() + "?read_timeout=200ms&dial_timeout=200ms", "search", "alice"}, "redis:// without")
	says(t, []string{"show", "-redis", "rediss://" + server.TLSAddr + "?skip_verify=true", "search", "alice"}, "state none")

	mutual := redistest.StartTLS(t, "--tls-auth-clients", "yes")
	fails(t, []string{"show", "-redis", "rediss://" + mutual.TLSAddr + "?skip_verify=true", "search", "alice"}, "a certificate of the client, which a URL cannot give")
}

// refusal is the error of a server.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// Only show and top work with a Cluster and with Sentinel, so their advice differs from that of other commands.
func TestAdviceOnSeveralNodes(t *testing.T) {
	for _, c := range []struct{ text, look, write string }{
		{"MOVED 5626 127.0.0.1:7000", "addr=other:6379", "give the URL of a Redis of one node"},
		{"ERR unknown command 'time', with args beginning with: ", "?master_name=mymaster", "give the URL of a Redis of one node"},
		{"ERR This instance has cluster support disabled", "leave addr out", ""},
		{"ERR unknown command 'sentinel', with args beginning with: 'a'", "must be of a Sentinel", ""},
		{"LOADING Redis is loading the dataset in memory", "", ""},
	} {
		for advice, err := range map[string]error{c.look: explainedToLook(refusal(c.text), "tl"), c.write: explained(refusal(c.text))} {
			if !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), advice) {
				t.Errorf("%v should say %q", err, advice)
			}
		}
	}
}
