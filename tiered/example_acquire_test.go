package tiered_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// This example lets each tenant run at most two jobs at a time, over all processes.
func ExampleRule_Acquire() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	jobs := limiter.MustRule("jobs", limit.Concurrent(2))

	for i := range 3 {
		slot, d, err := jobs.Acquire(context.Background(), "tenant 4", 1)
		if err != nil {
			log.Fatal(err)
		}
		if i == 0 {
			defer slot.Release()
		}
		fmt.Println(d.Allowed, d.Remaining, slot.Held())
	}
	// Output:
	// true 1 true
	// true 0 true
	// false 0 false
}

// This example waits for a slot that another job of the tenant releases.
func ExampleRule_AcquireWait() {
	rdb, stop := connect()
	defer stop()
	limiter, err := tiered.New(rdb, tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	jobs := limiter.MustRule("jobs", limit.Concurrent(1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	first, err := jobs.AcquireWait(ctx, "tenant 4", 1)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		// The first job.
		first.Release()
	}()
	second, err := jobs.AcquireWait(ctx, "tenant 4", 1)
	if err != nil {
		log.Fatal(err) // for example because ctx has ended
	}
	defer second.Release()
	fmt.Println(first.Held(), second.Held())
	// Output: false true
}
