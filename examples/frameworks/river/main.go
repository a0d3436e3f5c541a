// Command river calls an upstream in jobs of River, at most a fixed number of times a minute per tenant
// over all workers. It needs a Postgres with River's tables (river migrate-up).
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/tierlimit/tierlimit/examples/frameworks/internal/connect"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func main() {
	postgres := flag.String("postgres", os.Getenv("DATABASE_URL"), "URL of a Postgres with River's tables")
	redis := flag.String("redis", "", "URL of a Redis; without it, the process counts by itself")
	flag.Parse()
	if err := run(*postgres, *redis); err != nil {
		log.Fatal(err)
	}
}

func run(postgres, redis string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	limiter, err := connect.Limiter(redis)
	if err != nil {
		return err
	}
	defer limiter.Close()
	calls, err := limiter.Rule("upstream", limit.PerMinute(10))
	if err != nil {
		return err
	}

	pool, err := pgxpool.New(ctx, postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, &CallWorker{Rule: calls, Call: func(_ context.Context, tenant string) error {
		fmt.Println("a call for", tenant)
		return nil
	}})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers: workers,
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	for range 20 {
		if _, err := client.Insert(ctx, CallArgs{Tenant: "acme"}, nil); err != nil {
			return err
		}
	}
	<-client.Stopped() // after an interrupt, when the jobs under way are done
	return nil
}

// CallArgs are the arguments of a job.
type CallArgs struct {
	Tenant string `json:"tenant"`
}

// Kind returns the name by which River knows such jobs.
func (CallArgs) Kind() string { return "call" }

// CallWorker calls the upstream while the tenant's limit has room.
type CallWorker struct {
	river.WorkerDefaults[CallArgs]
	Rule *tiered.Rule
	Call func(ctx context.Context, tenant string) error
}

// Work makes one call, or postpones the job until there is room. A postponed job frees its worker at
// once, and does not use up an attempt.
func (w *CallWorker) Work(ctx context.Context, job *river.Job[CallArgs]) error {
	d, err := w.Rule.Allow(ctx, job.Args.Tenant)
	if err != nil {
		return err
	}
	if !d.Allowed {
		return river.JobSnooze(d.RetryAfter)
	}
	return w.Call(ctx, job.Args.Tenant)
}
