// Command jobs runs jobs of several tenants, and at most a fixed number of each tenant's jobs at a time
// over all processes that run it. Start it in several terminals with the same -redis. Kill one, or stop
// it (Ctrl-Z) and let it continue: the others take over its slots, and it notices.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

var tenants = []string{"acme", "globex", "initech"}

func main() {
	redis := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	most := flag.Int64("most", 2, "how many jobs of a tenant run at a time")
	workers := flag.Int("workers", 6, "how many jobs this process runs at a time")
	jobs := flag.Int("jobs", 20, "after how many jobs to end; 0 for never")
	flag.Parse()
	if *workers < 1 {
		log.Fatalf("-workers %d: must be at least 1", *workers)
	}
	if *jobs < 0 {
		log.Fatalf("-jobs %d: must be at least 1, or 0 to never end", *jobs)
	}

	limiter, stop, err := connect.Limiter(*redis)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	// When a process crashes in the middle of a job, its slot is unavailable to others for 5 s.
	rule, err := limiter.Rule("jobs", limit.Concurrent(*most), tiered.SlotTTL(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()

	queue := make(chan int)
	var running sync.WaitGroup
	for range *workers {
		running.Go(func() {
			for job := range queue {
				tenant := tenants[job%len(tenants)]
				name := fmt.Sprintf("job %d of %s", job, tenant)
				err := run(ctx, rule, tenant, func(step int) error {
					if step == 0 {
						fmt.Println(name, "begins")
					}
					return work(ctx)
				})
				if err != nil {
					fmt.Println(name, "was not done:", err)
					continue
				}
				fmt.Println(name, "is done")
			}
		})
	}
	for job := 0; (*jobs == 0 || job < *jobs) && ctx.Err() == nil; job++ {
		select {
		case queue <- job:
		case <-ctx.Done():
		}
	}
	close(queue)
	running.Wait()
}

// work stands for one step of a job.
func work(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(50+rand.IntN(100)) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// steps is the number of steps of a job.
const steps = 5

// errSlotLost ends a job whose slot may belong to another process by now. Such a job must start over.
var errSlotLost = errors.New("its slot is lost")

// run runs a job in steps, as soon as its tenant may have one more job running.
func run(ctx context.Context, rule *tiered.Rule, tenant string, step func(int) error) error {
	slot, err := rule.AcquireWait(ctx, tenant, 1)
	if err != nil {
		return err
	}
	defer slot.Release()
	for i := range steps {
		// After a pause of this process, another process may have the slot.
		if !slot.Held() {
			return errSlotLost
		}
		if err := step(i); err != nil {
			return err
		}
	}
	return nil
}
