package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// cgroups is the directory in which Linux describes control groups, and ownGroups is the file that lists the groups
// of this process. Tests replace both.
var (
	cgroups   = "/sys/fs/cgroup"
	ownGroups = "/proc/self/cgroup"
)

// boundMemory sets Go's memory limit if a container or service bounds the memory of the process. It returns the
// limit, or 0 if nothing bounds the memory. Go does not look at control groups by itself: with a live heap of a few
// MB, garbage alone would fill a small container, and the kernel would kill the process.
func boundMemory() int64 {
	most := mostMemory(ownGroups, cgroups)
	if most == 0 {
		return 0
	}
	most -= most / 10 // a tenth for the kernel, such as buffers of connections
	debug.SetMemoryLimit(most)
	return most
}

// mostMemory returns the least memory limit of the process's control groups and their ancestors, or 0 if there is
// none. Inside a container, the ancestors may be hidden. The path may also be the one outside the container: then no
// file is found until the root, which is the container's own group.
func mostMemory(own, root string) int64 {
	text, err := os.ReadFile(own)
	if err != nil {
		return 0
	}
	var most int64 = math.MaxInt64
	for line := range strings.Lines(string(text)) { // number:controllers:path; the controllers are empty in version 2
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		dir, file := root, "memory.max"
		if parts[1] != "" {
			if dir, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"; parts[1] != "memory" {
				continue
			}
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			if limit, ok := readLimit(filepath.Join(dir, path, file)); ok {
				most = min(most, limit)
			}
			if path == "/" {
				break
			}
		}
	}
	if most >= 1<<60 { // version 1 uses such a number for no limit
		return 0
	}
	return most
}

// readLimit reads a limit in bytes. It reports false for "max", which means no limit.
func readLimit(path string) (bytes int64, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	bytes, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return bytes, err == nil && bytes > 0
}
