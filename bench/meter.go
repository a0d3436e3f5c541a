package main

import (
	"context"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// meter adds up what Redis and this process used between its starts and stops.
type meter struct {
	controls []*redis.Client // one client for each server

	redisCPU float64            // seconds
	commands map[string]float64 // executed by Redis, including those that scripts call
	cpu      time.Duration
	mallocs  uint64
	bytes    uint64

	before struct {
		redis serverUsage
		heap  runtime.MemStats
		cpu   time.Duration
	}
}

func newMeter(controls ...*redis.Client) *meter {
	return &meter{controls: controls, commands: make(map[string]float64)}
}

// start reads this process's counters last and stop reads them first, so that they are closest to the measured work.
func (m *meter) start(ctx context.Context) (err error) {
	m.before.redis, err = readUsage(ctx, m.controls)
	runtime.ReadMemStats(&m.before.heap)
	m.before.cpu = processCPU()
	return err
}

func (m *meter) stop(ctx context.Context) error {
	m.cpu += processCPU() - m.before.cpu
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	m.mallocs += heap.Mallocs - m.before.heap.Mallocs
	m.bytes += heap.TotalAlloc - m.before.heap.TotalAlloc
	after, err := readUsage(ctx, m.controls)
	m.redisCPU += after.cpu - m.before.redis.cpu
	for name, n := range after.commands {
		m.commands[name] += n - m.before.redis.commands[name]
	}
	return err
}
