package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// busy is processes that only compute, on the one CPU that Redis may use. With n processes, Redis gets at most 1/(n+1)
// of that CPU.
type busy struct {
	redis string // its process id
	all   []*exec.Cmd
}

// startBusy starts n such processes. It needs Linux's taskset, and Redis on this machine.
func startBusy(ctx context.Context, control *redis.Client, n int) (*busy, error) {
	info, err := control.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, err
	}
	b := &busy{redis: info["Server"]["process_id"]}
	if _, err := strconv.Atoi(b.redis); err != nil {
		return nil, fmt.Errorf("INFO server: process_id is %q, want a number", b.redis)
	}
	if err := b.allow("0"); err != nil {
		return nil, fmt.Errorf("keeping Redis, process %s, on one CPU: %w", b.redis, err)
	}
	for range n {
		c := exec.Command("taskset", "-c", "0", "sh", "-c", "while :; do :; done")
		if err := redistest.StartTied(c); err != nil {
			return nil, errors.Join(err, b.stop())
		}
		b.all = append(b.all, c)
	}
	return b, nil
}

// allow sets which CPUs Redis may use.
func (b *busy) allow(cpus string) error {
	return exec.Command("taskset", "-a", "-p", "-c", cpus, b.redis).Run()
}

// stop ends the processes, and gives Redis all CPUs again.
func (b *busy) stop() error {
	for _, c := range b.all {
		_ = c.Process.Kill()
		_ = c.Wait() // the error says that the process was killed
	}
	return b.allow(fmt.Sprint("0-", runtime.NumCPU()-1))
}
