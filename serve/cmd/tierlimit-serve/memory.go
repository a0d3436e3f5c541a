package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// cgroups is where Linux tells of control groups, and ownGroups which of them this process is in. Tests
// have their own.
var (
	cgroups   = "/sys/fs/cgroup"
	ownGroups = "/proc/self/cgroup"
)

// boundMemory lets Go's runtime know how much memory the process may have, if its container or service is
// bounded, and returns what of it the runtime may use; 0 if nothing bounds it. Go does not look by itself:
// with a few MB that live, garbage alone would fill a small container, and the kernel would end the process.
func boundMemory() int64 {
	most := mostMemory(ownGroups, cgroups)
	if most == 0 {
		return 0
	}
	most -= most / 10 // for the kernel's part, such as buffers of connections
	debug.SetMemoryLimit(most)
	return most
}

// mostMemory is the least limit of the process's control groups and those above them; 0 if there is none.
// Inside a container the groups above may be hidden, or the path be the one outside, where nothing is
// found until its root is the container's own group.
func mostMemory(own, root string) int64 {
	text, err := os.ReadFile(own)
	if err != nil {
		return 0
	}
	var most int64 = math.MaxInt64
	for line := range strings.Lines(string(text)) { // number:controllers:path, of version 2 without controllers
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
	if most >= 1<<60 { // version 1 has such a number for none
		return 0
	}
	return most
}

// readLimit reads a number of bytes; "max" is none.
func readLimit(path string) (bytes int64, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	bytes, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return bytes, err == nil && bytes > 0
}
