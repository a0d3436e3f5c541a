package remote

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// answersWith is a hook of a client that answers all commands with an error, if there is one.
type answersWith struct {
	redis.Hook
	err error
}

func (a *answersWith) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *answersWith) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *answersWith) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a.err == nil {
			return next(ctx, cmd)
		}
		cmd.SetErr(a.err)
		return a.err
	}
}

// A trip apart is reported only if Redis fails. A node that has other slots has answered, and while the breaker is
// open there is nothing to report. That a trip apart is answered does not show that decisions are.
func TestWhichTripsApartAreReported(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		failed, open := serverSays("LOADING Redis is loading the dataset in memory"), errors.New("open")
		for _, test := range []struct {
			what     string
			says     error
			begins   error
			reported bool
		}{
			{"an answer", nil, nil, false},
			{"a failure", failed, nil, true},
			{"a failure, while the breaker is open", failed, open, false},
			{"slots that are moving", serverSays("TRYAGAIN Multiple keys request during rehashing of slot"), nil, false},
			{"slots without a master", serverSays("CLUSTERDOWN Hash slot not served"), nil, false},
		} {
			client, answers := bubble.Client(t), &answersWith{err: test.says}
			client.AddHook(answers)
			begun, ended, entries, took := 0, []error(nil), 0, time.Duration(-1)
			b := NewBatcher(NewScript(client), Options{Deadline: time.Second, MaxBatch: 128, MaxWork: 100_000, InFlight: 1, Queue: 10}, Hooks{
				Begin: func() (func(error), error) {
					begun++
					return func(err error) { ended = append(ended, err) }, test.begins
				},
				Trip: func(n int, of time.Duration, _ error) { entries, took = n, of },
			})
			rule := newRule(t, limit.PerHour(10), limit.GCRA())
			_ = b.DecideApart([]Entry{
				{Key: "k", Rule: rule, Operation: lua.Take, Cost: 1}, {Key: "l", Rule: rule, Operation: lua.Take, Cost: 1},
			}, time.Second)
			if test.reported != (entries == 2 && took >= 0 && took <= time.Second && len(ended) == 1 && errors.Is(ended[0], failed)) {
				t.Errorf("%s is reported: begun %d times, ended with %v, %d entries in %v", test.what, begun, ended, entries, took)
			}
			if !test.reported && (entries != 0 || len(ended) != 0 || begun != 0 && test.begins == nil) {
				t.Errorf("%s is reported: begun %d times, ended with %v, %d entries in %v", test.what, begun, ended, entries, took)
			}
			now := localTime()
			b.apartFailed(2, now-(10*time.Second).Microseconds(), now, time.Second, ErrNoAnswer)
			if wanted := map[bool]int{true: 1}[test.reported]; len(ended) != wanted {
				t.Errorf("%s: a time-out that this process notices late is reported", test.what)
			}
			b.Close()
		}
	})
}

// A trip apart that is not answered in time is no failure of Redis if Redis has answered another one meanwhile. Other
// errors are.
func TestTripsApartOfASlowRedis(t *testing.T) {
	for _, test := range []struct {
		answered int64 // when Redis has answered another trip, in ms after this one began
		err      error
		failures int
	}{
		{-1, ErrNoAnswer, 1}, {0, ErrNoAnswer, 1}, {1, ErrNoAnswer, 0}, {1, serverSays("LOADING Redis is loading the dataset in memory"), 1},
	} {
		failures := 0
		b := NewBatcher(NewScript(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})), Options{Deadline: 100 * time.Millisecond}, Hooks{ // never contacted
			Begin: func() (func(error), error) { return func(error) { failures++ }, nil },
			Trip:  func(int, time.Duration, error) {},
		})
		now := localTime()
		began := now - 100*ms
		b.lastAnswer.Store(began + test.answered*ms)
		if b.apartFailed(1, began, now, 100*time.Millisecond, test.err); failures != test.failures {
			t.Errorf("%+v: %d failures", test, failures)
		}
		b.Close()
	}
}

// exits is a hook of a client that ends the goroutine of each decision.
type exits struct{ answersWith }

func (*exits) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "fcall", "evalsha", "eval":
			runtime.Goexit()
		}
		return next(ctx, cmd)
	}
}

// If a function of the program that the client calls ends its goroutine, the entries of a trip apart have an error.
func TestATripApartWhoseGoroutineEnds(t *testing.T) {
	client, _ := redistest.Embedded(t)
	client.AddHook(new(exits))
	b, _ := newBatcher(t, client)
	replies := b.DecideApart([]Entry{{Key: "k", Rule: newRule(t, limit.PerHour(10), limit.GCRA()), Operation: lua.Take, Cost: 1}}, 10*time.Second)
	if !errors.Is(replies[0].Err, errAbandoned) {
		t.Errorf("%+v", replies[0])
	}
}

// sends is a hook of a client that sends each command only after a pause, whatever time the command has.
type sends struct {
	answersWith
	after time.Duration
}

func (s *sends) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(s.after)
		return next(context.WithoutCancel(ctx), cmd)
	}
}

// Law 4: if Redis answers that an entry of a trip apart came too late, the entry has an error, and nothing is charged.
func TestLaw4ALateEntryOfATripApartHasAnError(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		client, delay := bubble.Client(t), new(sends)
		client.AddHook(delay)
		b, _ := newBatcher(t, client, func(o *Options) { o.Inline = true })
		entries := []Entry{{Key: "k", Rule: newRule(t, limit.PerHour(10), limit.GCRA()), Operation: lua.Take, Cost: 1}}
		for i, want := range []error{nil, errLate, nil} {
			delay.after = []time.Duration{0, 2 * time.Second, 0}[i]
			replies := b.DecideApart(entries, time.Second)
			if !errors.Is(replies[0].Err, want) || want == nil && replies[0].Remaining != int64(9-i/2) {
				t.Errorf("after %v: %+v; want the error %v", delay.after, replies, want)
			}
		}
	})
}
