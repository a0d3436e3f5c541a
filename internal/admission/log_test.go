package admission

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Clients must not be able to fill a log, whatever they do wrong. So mistakes and failures together make one line
// per second.
func TestALogHasOneLinePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := NewLog("test: ")
		log.Logger = slog.New(slog.NewTextHandler(&out, nil))
		for range 3 {
			log.Warn("a failure")
			log.Error("a mistake")
			log.Warn("a failure")
			time.Sleep(time.Second)
			log.Error("a mistake")
			log.Warn("a failure")
			time.Sleep(time.Second)
		}
		failures, mistakes := strings.Count(out.String(), `"test: a failure"`), strings.Count(out.String(), `"test: a mistake"`)
		if failures != 3 || mistakes != 3 {
			t.Errorf("%d lines about failures and %d about mistakes in 6 s, want 3 each:\n%s", failures, mistakes, out.String())
		}
	})
}
