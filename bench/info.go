package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// readInfo reads one section of a server's INFO.
func readInfo(ctx context.Context, client *redis.Client, section string) (map[string]string, error) {
	text, err := client.Info(ctx, section).Result()
	return parseInfo(text), err
}

func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// serverUsage is the CPU time and the commands of a Redis server since it started.
type serverUsage struct {
	cpu      float64            // seconds, of all its threads
	commands map[string]float64 // executed commands, including those that scripts call
}

func readServerUsage(ctx context.Context, client *redis.Client) (serverUsage, error) {
	stats, err := readInfo(ctx, client, "commandstats")
	if err != nil {
		return serverUsage{}, err
	}
	cpu, err := readInfo(ctx, client, "cpu")
	if err != nil {
		return serverUsage{}, err
	}
	return parseServerUsage(stats, cpu)
}

// readUsage returns the sum of the usage of several servers.
func readUsage(ctx context.Context, controls []*redis.Client) (serverUsage, error) {
	sum := serverUsage{commands: make(map[string]float64)}
	for _, control := range controls {
		u, err := readServerUsage(ctx, control)
		if err != nil {
			return sum, err
		}
		sum.cpu += u.cpu
		for name, n := range u.commands {
			sum.commands[name] += n
		}
	}
	return sum, nil
}

func parseServerUsage(stats, cpu map[string]string) (serverUsage, error) {
	u := serverUsage{commands: make(map[string]float64)}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu[name], 64)
		if err != nil {
			return u, fmt.Errorf("INFO cpu: %s: %w", name, err)
		}
		u.cpu += seconds
	}
	for name, value := range stats {
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok {
			continue
		}
		calls, err := callsOf(value)
		if err != nil {
			return u, fmt.Errorf("INFO commandstats: %s: %w", name, err)
		}
		u.commands[command] = calls
	}
	return u, nil
}

// callsOf returns the number in "calls=21,usec=175,...".
func callsOf(stat string) (float64, error) {
	first, _, _ := strings.Cut(stat, ",")
	return strconv.ParseFloat(strings.TrimPrefix(first, "calls="), 64)
}
