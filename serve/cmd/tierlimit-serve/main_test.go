package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/serve"
)

// Flags that do not say what to do are an error, and start no service.
func TestFlags(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end() // a service that starts would end at once, without an error
	for args, want := range map[string]string{
		"-check=":                            "neither -check nor -try",
		"-overlay=f":                         "neither -check nor -try",
		"-hits=5":                            "neither -check nor -try",
		"-check=dir -try=domain=d,k=v":       "-check and -try are both set",
		"-try=domain=d,k=v -hits=4294967296": "-hits is 4294967296, must be at most 4294967295",
		"-try=x":                             "must be like domain=",
		"-check=/nowhere":                    "/nowhere",
		"-chekc=dir":                         "flag provided but not defined",
		"config":                             `unknown argument "config"`,
		"/bin/ratelimit x":                   `unknown argument "x"`,
		"-config=f -hits=5":                  "neither -check nor -try",
		"/bin/ratelimit":                     "PORT is", // as in docker-compose files: it serves
		"/bin/ratelimit -config f":           "PORT is", // as in manifests that pass a flag that the original ignores
		"-config f":                          "PORT is",
		"":                                   "PORT is",
	} {
		err := run(ended, strings.Fields(args), []string{"PORT=x"}, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// A small live heap may have four times as much garbage, and a large one no more than its own size.
func TestGarbage(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 400, 4 << 20: 400, 32 << 20: 400, 40 << 20: 300, 64 << 20: 200, 100 << 20: 100, 1 << 40: 100,
	} {
		if percent := garbagePercent(live); percent != want {
			t.Errorf("%d bytes live: %d %%, want %d", live, percent, want)
		}
	}
}

// The percentage is set, and lowered when the live heap grows.
func TestGarbageIsBounded(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	percent := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	become := func(want uint64) {
		t.Helper()
		for until := time.Now().Add(10 * time.Second); percent() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%d %%, want %d", percent(), want)
			}
		}
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		boundGarbage(ctx)
	}()
	defer func() {
		end()
		<-ended
	}()
	runtime.GC() // removes what earlier tests have left
	become(400)
	large := make([]byte, 200<<20)
	runtime.GC()
	become(100)
	runtime.KeepAlive(large)
}

// Levels, and the fields of JSON, have envoyproxy/ratelimit's names.
func TestNamesInLogs(t *testing.T) {
	var out bytes.Buffer
	newLog(&serve.Settings{LogJSON: true}, &out).Warn("listening", "at", "a:1")
	var line map[string]string
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.RFC3339Nano, line["@timestamp"]); err != nil || len(line) != 4 || line["@message"] != "listening" || line["level"] != "warning" || line["at"] != "a:1" {
		t.Errorf("%s (%v)", out.String(), err)
	}
	out.Reset()
	log := newLog(&serve.Settings{LogLevel: slog.LevelInfo}, &out)
	log.Debug("hidden")
	log.Error("lost", "for", time.Second)
	if text := out.String(); !strings.HasPrefix(text, "time=") || !strings.HasSuffix(text, " level=error msg=lost for=1s\n") || strings.Contains(text, "hidden") {
		t.Error(text)
	}
}
