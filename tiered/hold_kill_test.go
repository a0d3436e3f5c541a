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

// holderVariable is an environment variable that turns the test binary into a process that holds units until it
// is killed. Its value is the URL of a Redis and a prefix, separated by a space.
const holderVariable = "TIERED_HOLDER"

const (
	holderQuota = 1000
	holderLife  = 2 * time.Second
)

func holderRule(t testing.TB, l *Limiter) *Rule {
	return newRule(t, l, "r", limit.PerDay(holderQuota), Use(limit.SlidingLog()), Unsettled(GiveBack), OnOutage(Deny))
}

// TestHolderProcess is the code of that process. It settles some of its holds, and leaves others open.
func TestHolderProcess(t *testing.T) {
	url, prefix, found := strings.Cut(os.Getenv(holderVariable), " ")
	if !found {
		return // without the variable, this test has nothing to do
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
			_, _ = os.Stdout.WriteString("holding\n") // the loop continues
		}
	}
}

// Law 12: whenever processes are killed, the key looks as if they had never existed once their holds have ended.
func TestLaw12NothingLeaksFromKilledProcesses(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	client := server.Client(t)
	l := newLimiterOn(t, client, prefix, Deadline(5*time.Second))
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
	// All times are of Redis's clock, and looked is read before each look at the key. The last hold was charged
	// before the last process was killed, so its life ends at most holderLife after that. The next look finds the
	// units free. One second is allowed for it.
	clock := func() time.Time {
		now, err := client.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	killed := clock()
	var looked time.Time // the time before the last look that found units held
	redistest.Eventually(t, "all units are back", func() bool {
		before := clock()
		if left(t, r, "k") == holderQuota {
			return true
		}
		looked = before
		return false
	})
	if stillHeld := looked.Sub(killed); stillHeld > holderLife+time.Second {
		t.Errorf("units were held %v after the last process was killed, want at most %v", stillHeld, holderLife+time.Second)
	} else {
		t.Logf("units were held for %v after the last process was killed", stillHeld)
	}
	h, d, err := r.Hold(ctx, "k", holderQuota, time.Minute)
	if err != nil || h == nil {
		t.Fatalf("holding all of it: %+v, %v", d, err)
	}
	mustSettle(t, h, 0)
}
