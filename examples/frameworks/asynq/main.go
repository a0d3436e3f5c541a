// Command asynq calls an upstream in tasks of Asynq, at most a fixed number of times a minute per
// tenant over all servers. It needs a Redis, which stores both the tasks and the limit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const taskCall = "call"

func main() {
	redis := flag.String("redis", "redis://127.0.0.1:6379", "URL of a Redis")
	flag.Parse()
	if err := run(*redis); err != nil {
		log.Fatal(err)
	}
}

func run(redis string) error {
	limiter, err := tiered.OpenURL(redis)
	if err != nil {
		return err
	}
	defer limiter.Close()
	calls, err := limiter.Rule("upstream", limit.PerMinute(10))
	if err != nil {
		return err
	}
	broker, err := asynq.ParseRedisURI(redis)
	if err != nil {
		return err
	}
	client := asynq.NewClient(broker)
	defer client.Close()
	for range 20 {
		if _, err := client.Enqueue(asynq.NewTask(taskCall, []byte("acme")), asynq.MaxRetry(5)); err != nil {
			return err
		}
	}

	mux := asynq.NewServeMux()
	mux.Use(limited(calls, func(task *asynq.Task) string { return string(task.Payload()) }))
	mux.HandleFunc(taskCall, func(_ context.Context, task *asynq.Task) error {
		fmt.Printf("a call for %s\n", task.Payload())
		return nil
	})
	return asynq.NewServer(broker, config()).Run(mux) // until it is interrupted
}

// config returns the configuration of a server whose tasks may be denied.
func config() asynq.Config {
	return asynq.Config{Concurrency: 100, IsFailure: isFailure, RetryDelayFunc: retryDelay}
}

// deniedError is the error of a task for which a limit has no room.
type deniedError struct{ retryAfter time.Duration }

func (e *deniedError) Error() string { return fmt.Sprintf("denied: there is room in %v", e.retryAfter) }

// isFailure reports whether an error uses up a retry: all errors except denials do.
func isFailure(err error) bool {
	var denied *deniedError
	return err != nil && !errors.As(err, &denied)
}

// retryDelay returns how long to wait before a task is tried again. A denied task is tried as soon as
// there is room, but no earlier. Asynq truncates the time to whole seconds, so a second is added.
func retryDelay(retried int, err error, task *asynq.Task) time.Duration {
	var denied *deniedError
	if errors.As(err, &denied) {
		return denied.retryAfter + time.Second
	}
	return asynq.DefaultRetryDelayFunc(retried, err, task)
}

// limited applies a rule to tasks. A denied task frees its worker at once, and is tried again without
// using up a retry.
//
// Asynq archives any task that ends with an error and has no retries left, even a denied one. So the
// last retry is kept for denials: a task fails for good one retry earlier. With asynq.MaxRetry(n) a
// task may fail n times; n must be at least 1.
func limited(rule *tiered.Rule, key func(*asynq.Task) string) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			d, err := rule.Allow(ctx, key(task))
			if err == nil && !d.Allowed {
				return &deniedError{d.RetryAfter}
			}
			if err == nil { // an error of the limiter uses up a retry, like one of the task
				err = next.ProcessTask(ctx, task)
			}
			if err == nil {
				return nil
			}
			retried, _ := asynq.GetRetryCount(ctx)
			if most, ok := asynq.GetMaxRetry(ctx); ok && retried+1 >= most {
				return fmt.Errorf("%w: %w", asynq.SkipRetry, err)
			}
			return err
		})
	}
}
