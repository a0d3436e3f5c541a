package tiered

import (
	"bufio"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// holderVariable, when set, turns the test binary into a process that holds units until it is killed:
// of the Redis at that URL, under the prefix behind it.
const holderVariable = "TIERED_HOLDER"

const (
	holderQuota = 1000
	holderLife  = 2 * time.Second
)

func holderRule(t testing.TB, l *Limiter) *Rule {
	return newRule(t, l, "r", limit.PerDay(holderQuota), Use(limit.SlidingLog()), Unsettled(GiveBack), OnOutage(Deny))
}

// TestHolderProcess is that process. It settles some of its holds, and leaves others open.
func TestHolderProcess(t *testing.T) {
	url, prefix, found := strings.Cut(os.Getenv(holderVariable), " ")
	if !found {
		return // as a test of its own it has nothing to do
	}
	l, err := OpenURL(url, Prefix(prefix), Deadline(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	r := holderRule(t, l)
	for n := 0; ; n++ {
		h, _, err := r.Hold(context.Background(), "k", 1+rand.Int64N(9), holderLife)
		if err != nil {
			t.Fatal(err)
		}
		if h != nil && rand.Int64N(3) > 0 {
			_ = h.Cancel(context.Background())
		}
		if n == 20 {
			_, _ = os.Stdout.WriteString("holding\n") // and goes on
		}
	}
}

// Whenever processes are killed, in the middle of whatever they do: once their holds have come to
// their end the key is as if they had never been.
func TestLaw12NothingLeaksFromKilledProcesses(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second))
	r := holderRule(t, l)
	ctx := context.Background()
	for range 4 {
		holder := exec.Command(os.Args[0], "-test.run=^TestHolderProcess$", "-test.timeout=60s")
		holder.Env = append(os.Environ(), holderVariable+"="+server.URL()+" "+prefix)
		out, err := holder.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "holding"; {
		}
		if d, err := r.Peek(ctx, "k", 1); err != nil || d.Remaining == holderQuota {
			t.Errorf("while it lives: %+v, %v", d, err)
		}
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}
	killed := time.Now()
	redistest.Eventually(t, "all units are back", func() bool { return left(t, r, "k") == holderQuota })
	t.Logf("all units were back %v after the last process was killed", time.Since(killed))
	h, d, err := r.Hold(ctx, "k", holderQuota, time.Minute)
	if err != nil || h == nil {
		t.Fatalf("holding all of it: %+v, %v", d, err)
	}
	mustSettle(t, h, 0)
}
