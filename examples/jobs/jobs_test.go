package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// ttl is longer than the tests take, so a slot that comes back during a test was given back.
const ttl = 10 * time.Minute

// process returns the limiter and the rule of one process of the program.
func process(t *testing.T, redis *redistest.Server, most int64) (*tiered.Limiter, *tiered.Rule) {
	t.Helper()
	limiter, stop, err := connect.Limiter(redis.URL(), tiered.Logger(slog.New(slog.DiscardHandler)), tiered.Deadline(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return limiter, limiter.MustRule("jobs", limit.Concurrent(most), tiered.SlotTTL(ttl))
}

// free returns how many more jobs of a tenant may run.
func free(t *testing.T, rule *tiered.Rule, tenant string) int64 {
	t.Helper()
	d, err := rule.Peek(context.Background(), tenant, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// However many processes and workers there are, at most the given number of a tenant's jobs run at a
// time. All jobs are done, and nothing is held at the end.
func TestAtMostSoManyJobsOfATenantRun(t *testing.T) {
	const processes, workers, jobs, most = 3, 4, 24, 2
	redis := redistest.Start(t)
	var running [2]atomic.Int64 // jobs that run, by tenant
	var next, done atomic.Int64
	var all sync.WaitGroup
	for range processes {
		_, rule := process(t, redis, most)
		for range workers {
			all.Go(func() {
				for job := next.Add(1); job <= jobs; job = next.Add(1) {
					tenant := int(job) % len(running)
					err := run(t.Context(), rule, tenants[tenant], func(step int) error {
						if step == 0 {
							if now := running[tenant].Add(1); now > most {
								t.Errorf("%d jobs of %s run at a time", now, tenants[tenant])
							}
						}
						time.Sleep(time.Millisecond) // stands for the work
						if step == steps-1 {
							running[tenant].Add(-1)
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
					done.Add(1)
				}
			})
		}
	}
	all.Wait()
	if done.Load() != jobs {
		t.Errorf("%d jobs of %d are done", done.Load(), jobs)
	}
	_, rule := process(t, redis, most)
	for tenant := range running {
		redistest.Eventually(t, "all slots are free", func() bool { return free(t, rule, tenants[tenant]) == most })
	}
}

// If a job's context is canceled, or a process ends in the middle of jobs, the slots come back at once,
// and others who wait get them.
func TestSlotsComeBack(t *testing.T) {
	const tenant = "acme"
	failed := errors.New("failed")
	for name, end := range map[string]func(cancel context.CancelFunc, limiter *tiered.Limiter, proceed chan error){
		"cancelled": func(cancel context.CancelFunc, _ *tiered.Limiter, _ chan error) { cancel() },
		"closed": func(_ context.CancelFunc, limiter *tiered.Limiter, proceed chan error) {
			if err := limiter.Close(); err != nil {
				t.Error(err)
			}
			close(proceed) // the job continues
		},
		"failed": func(_ context.CancelFunc, _ *tiered.Limiter, proceed chan error) { proceed <- failed },
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t)
			limiter, rule := process(t, redis, 1)
			_, other := process(t, redis, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			begun, proceed, ended := make(chan int, steps), make(chan error), make(chan error)
			go func() {
				ended <- run(ctx, rule, tenant, func(step int) error {
					begun <- step
					select {
					case err := <-proceed:
						return err
					case <-ctx.Done():
						return ctx.Err()
					}
				})
			}()
			<-begun
			if n := free(t, other, tenant); n != 0 {
				t.Fatalf("%d slots are free while a job runs", n)
			}
			waited := make(chan error)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // far below the TTL
				defer cancel()
				waited <- run(ctx, other, tenant, func(int) error { return nil })
			}()
			end(cancel, limiter, proceed)
			if err, want := <-ended, map[string]error{"cancelled": context.Canceled, "closed": errSlotLost, "failed": failed}[name]; !errors.Is(err, want) {
				t.Errorf("the job ended with %v, want %v", err, want)
			}
			if err := <-waited; err != nil {
				t.Errorf("who waited: %v", err)
			}
			redistest.Eventually(t, "the slot is free", func() bool { return free(t, other, tenant) == 1 })
		})
	}
}
