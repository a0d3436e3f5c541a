package main

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// The least limit of a control group and its ancestors counts, under both versions of control groups, inside a
// container and outside.
func TestMemoryOfControlGroups(t *testing.T) {
	for name, c := range map[string]struct {
		own   string
		files map[string]string
		want  int64
	}{
		"none":                        {"0::/\n", nil, 0},
		"no limit":                    {"0::/\n", map[string]string{"memory.max": "max\n"}, 0},
		"a container":                 {"0::/\n", map[string]string{"memory.max": "67108864\n"}, 64 << 20},
		"a service":                   {"0::/a.slice/b.service\n", map[string]string{"a.slice/b.service/memory.max": "67108864\n", "a.slice/memory.max": "max\n"}, 64 << 20},
		"a smaller one above":         {"0::/a.slice/b.service\n", map[string]string{"a.slice/b.service/memory.max": "67108864\n", "a.slice/memory.max": "33554432\n"}, 32 << 20},
		"a larger one above":          {"0::/a/b\n", map[string]string{"a/b/memory.max": "67108864\n", "a/memory.max": "134217728\n"}, 64 << 20},
		"version 1":                   {"4:memory:/docker/x\n1:cpu:/docker/x\n", map[string]string{"memory/docker/x/memory.limit_in_bytes": "67108864\n"}, 64 << 20},
		"version 1, seen from inside": {"4:memory:/docker/x\n0::/docker/x\n", map[string]string{"memory/memory.limit_in_bytes": "67108864\n"}, 64 << 20},
		"version 1, no limit":         {"4:memory:/\n", map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"another controller's":        {"4:cpu:/\n", map[string]string{"memory/memory.limit_in_bytes": "67108864\n"}, 0},
		"damaged":                     {"memory\n\n0::/\n", map[string]string{"memory.max": "0\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			own := filepath.Join(t.TempDir(), "cgroup")
			write(t, own, c.own)
			for path, text := range c.files {
				write(t, filepath.Join(root, path), text)
			}
			if most := mostMemory(own, root); most != c.want {
				t.Errorf("%d bytes, want %d", most, c.want)
			}
		})
	}
}

// Before a service starts, Go's memory limit is set to nine tenths of the container's limit. It is not set if there
// is no limit, or if GOMEMLIMIT is set.
func TestMemoryIsBounded(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	defer func(root, own string) { cgroups, ownGroups = root, own }(cgroups, ownGroups)
	cgroups = t.TempDir()
	ownGroups = filepath.Join(cgroups, "own")
	ended, end := context.WithCancel(t.Context())
	end() // a service that starts ends at once
	serve := func(variable string, want int64) {
		t.Helper()
		t.Setenv("GOMEMLIMIT", variable)
		if err := run(ended, nil, []string{"GRPC_PORT=0"}, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		if most := debug.SetMemoryLimit(-1); most != want {
			t.Errorf("%d bytes, want %d", most, want)
		}
	}
	serve("", math.MaxInt64)
	write(t, ownGroups, "0::/\n")
	write(t, filepath.Join(cgroups, "memory.max"), "1000000000\n")
	serve("off", math.MaxInt64)
	serve("", 900_000_000)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
