package tiered

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// losingHolds is a hook that loses the reply to the next command about holds once it is armed. The command runs.
type losingHolds struct {
	watching
	then atomic.Pointer[func()] // called before the caller learns that there is no reply; nil: not armed
}

func (l *losingHolds) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		aboutHolds := slices.ContainsFunc(cmd.Args(), func(arg any) bool {
			key, ok := arg.(*string)
			return ok && strings.HasSuffix(*key, ":holds")
		})
		if !aboutHolds {
			return err
		}
		if then := l.then.Swap(nil); then != nil {
			(*then)()
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

// Law 3: what a hold used is charged once although Redis loses its data and the reply to the settlement is lost as
// well, before or after the loss of the data, and although the key is not used again.
func TestLaw3LostHoldsWhoseSettlementsGetNoReply(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		used  int64
		late  bool // the reply is lost after the loss of data was noticed, otherwise before the data are lost
		reuse bool // the key is used again after the settlement
	}{
		"more was used, data are lost first":                 {15, true, false},
		"less was used, data are lost first":                 {4, true, false},
		"more was used, data are lost first, key used again": {15, true, true},
		"less was used, data are lost first, key used again": {4, true, true},
		"more was used, the reply is lost first":             {15, false, false},
		"less was used, the reply is lost first":             {4, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, prefix, hook := redistest.Start(t), redistest.Prefix(), new(losingHolds)
			client := server.Client(t)
			client.AddHook(hook)
			l := newLimiterOn(t, client, prefix, Deadline(5*time.Second))
			awaitHealthy(t, l)
			r := newRule(t, l, "r", limit.PerHour(lostQuota), Use(limit.SlidingLog()))
			h := mustHold(t, r, "k", lostEstimate, time.Hour)
			loses := func() {
				if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil {
					t.Error(err)
				}
			}
			meanwhile := func() {}
			if test.late {
				loses()
				redistest.Eventually(t, "the loss is noticed", func() bool { return l.Stats().MemoryLosses == 1 && !l.Degraded() })
			} else {
				meanwhile = func() {
					l.shard.Breaker.ForceOpen(errors.New("Redis is lost"))
					loses()
				}
			}
			hook.then.Store(&meanwhile)
			mustSettle(t, h, test.used)
			if hook.then.Load() != nil {
				t.Fatal("no reply was lost")
			}
			want := test.used
			redistest.Eventually(t, "it is settled", func() bool {
				return l.Stats().Holds.Unsettled == 0 && l.Stats().MemoryLosses == 1 && !l.Degraded()
			})
			if test.reuse {
				mustAllow(t, r, "k", 1)
				want++
			}
			redistest.Eventually(t, "all is charged", func() bool { return !l.shard.Owes() })
			if charged := lostQuota - peekFrom(t, server, prefix, r, "k"); charged != want {
				t.Errorf("%d units are charged, want %d: %+v", charged, want, l.Stats().Holds)
			}
			if n := recorded(r, "k"); n != want {
				t.Errorf("%d units are on record, want %d", n, want)
			}
		})
	}
}
