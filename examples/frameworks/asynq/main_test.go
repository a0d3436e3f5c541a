package main

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// On a Redis, with a server of Asynq, all of more tasks than the limit has room for are done, and
// denials use up no retry. A task that fails is archived after the number of failures that it may have, and so
// is a task whose limit cannot be decided.
func TestTasksAboveTheLimitAreTriedAgain(t *testing.T) {
	const tasks, atOnce, window = 5, 3, time.Second
	redis := redistest.Start(t)
	limiter, err := tiered.OpenURL(redis.URL(), tiered.Logger(slog.New(slog.DiscardHandler)), tiered.Deadline(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	rule := limiter.MustRule("upstream", limit.Per(atOnce, window))
	broker := asynq.RedisClientOpt{Addr: redis.Addr()}
	client := asynq.NewClient(broker)
	defer client.Close()
	enqueue := func(id string) {
		t.Helper()
		_, err := client.Enqueue(asynq.NewTask(taskCall, []byte(id)), asynq.TaskID(id), asynq.MaxRetry(1), asynq.Retention(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range tasks {
		enqueue(strconv.Itoa(i))
	}
	enqueue("fails")
	enqueue("undecided")

	var denials, failures atomic.Int64
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			err := next.ProcessTask(ctx, task)
			var denied *deniedError
			if errors.As(err, &denied) {
				denials.Add(1)
				if denied.retryAfter <= 0 || denied.retryAfter > window {
					t.Errorf("room in %v of a window of %v", denied.retryAfter, window)
				}
			}
			return err
		})
	})
	mux.Use(limited(rule, func(task *asynq.Task) string {
		switch string(task.Payload()) {
		case "fails":
			return "another"
		case "undecided":
			return "" // an error of the limiter
		}
		return "acme"
	}))
	mux.HandleFunc(taskCall, func(_ context.Context, task *asynq.Task) error {
		if string(task.Payload()) == "fails" {
			failures.Add(1)
			return errors.New("on purpose")
		}
		return nil
	})
	c := config()
	c.DelayedTaskCheckInterval, c.TaskCheckInterval, c.LogLevel = 50*time.Millisecond, 50*time.Millisecond, asynq.FatalLevel
	server := asynq.NewServer(broker, c)
	if err := server.Start(mux); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()

	inspector := asynq.NewInspector(broker)
	defer inspector.Close()
	ended := func(id string, state asynq.TaskState) *asynq.TaskInfo {
		t.Helper()
		var info *asynq.TaskInfo
		redistest.Eventually(t, "task "+id+" is "+state.String(), func() bool {
			info, err = inspector.GetTaskInfo("default", id)
			return err == nil && (info.State == state || info.State == asynq.TaskStateArchived)
		})
		if info.State != state {
			t.Fatalf("task %s is %v: %s", id, info.State, info.LastErr)
		}
		return info
	}
	for i := range tasks {
		if info := ended(strconv.Itoa(i), asynq.TaskStateCompleted); info.Retried != 0 {
			t.Errorf("task %d has used up %d retries", i, info.Retried)
		}
	}
	if denials.Load() == 0 {
		t.Error("no task was denied: the limit did not apply")
	}
	if info := ended("fails", asynq.TaskStateArchived); failures.Load() != 1 || info.Retried != 0 {
		t.Errorf("the task that fails did so %d times, and has used up %d retries", failures.Load(), info.Retried)
	}
	if info := ended("undecided", asynq.TaskStateArchived); info.Retried != 0 {
		t.Errorf("the task whose limit is not decided has used up %d retries", info.Retried)
	}
}

func TestDelays(t *testing.T) {
	denied := &deniedError{30 * time.Second}
	if d := retryDelay(3, denied, nil); d != 31*time.Second || isFailure(denied) {
		t.Errorf("a denial: again in %v, a failure: %v", d, isFailure(denied))
	}
	failed := errors.New("failed")
	if d := retryDelay(3, failed, nil); d < 81*time.Second || !isFailure(failed) || isFailure(nil) {
		t.Errorf("a failure: again in %v", d)
	}
}
