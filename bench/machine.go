package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9"
)

// machine describes where the figures come from. They cannot be compared with another machine's.
type machine struct {
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	System   string            `json:"system"`
	Go       string            `json:"go"`
	Redis    string            `json:"redis"`
	Versions map[string]string `json:"versions"` // of the modules compared
}

func thisMachine(ctx context.Context, client *redis.Client) (machine, error) {
	info, err := readInfo(ctx, client, "server")
	m := machine{
		CPU:      cpuModel(),
		Cores:    runtime.NumCPU(),
		System:   runtime.GOOS + "/" + runtime.GOARCH,
		Go:       runtime.Version(),
		Redis:    "Redis " + info["redis_version"],
		Versions: make(map[string]string),
	}
	if v := info["valkey_version"]; v != "" {
		m.Redis = "Valkey " + v
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			for _, name := range compared {
				if strings.HasSuffix(module.Path, "/"+name) {
					m.Versions[name] = module.Version
				}
			}
		}
	}
	return m, err
}

// compared are the modules whose versions matter.
var compared = []string{
	"redis/go-redis/v9",
	"go-redis/redis_rate/v10",
	"redis/rueidis",
	"redis/rueidis/rueidislimiter",
	"ulule/limiter/v3",
	"throttled/throttled/v2",
	"zeromicro/go-zero",
	"sethvargo/go-limiter",
	"sethvargo/go-redisstore",
	"gomodule/redigo",
	"dgraph-io/ristretto/v2",
	"x/time",
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // exists on few systems other than Linux
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}
