package statsd

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"syscall"
)

// container returns the container of this process in the form in which Datadog's client sends it, or "" if it finds
// none. The agent adds the tags of the container to what is sent.
func container() string { return containerAt(os.DirFS("/")) }

// hostCgroups is the inode of the host's namespace of control groups.
const hostCgroups = 0xEFFFFFFB

var (
	// inCgroup matches a line of /proc/self/cgroup that ends with a container's ID.
	inCgroup = regexp.MustCompile(`(?m)^\d+:[^:\n]*:.*?([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{64}|[0-9a-f]{32}-\d+)(?:\.scope)?$`)
	// inMounts matches the mount of a container's hostname. The group is the directory in which the ID is.
	inMounts = regexp.MustCompile(`(?m)^.*/([^\s/]+)/(?:[0-9a-f]{64}|[0-9a-f]{32}-[0-9]{10})/\S*hostname`)
)

// containerAt looks in the given root of the file system. It finds a container where Datadog's client does: by its ID
// if the host's control groups are visible, and otherwise by the inode of its control group.
func containerAt(root fs.FS) string {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // without the file there is no container
	if inode(root, "proc/self/ns/cgroup") == hostCgroups {
		if found := inCgroup.FindSubmatch(groups); found != nil {
			return string(found[1])
		}
		return ""
	}
	if mounts, _ := fs.ReadFile(root, "proc/self/mountinfo"); !namesContainer(mounts) {
		return ""
	}
	of := make(map[string]string) // paths of control groups by controller, which is "" in version 2
	for line := range strings.Lines(string(groups)) {
		if parts := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(parts) == 3 {
			of[parts[1]] = parts[2]
		}
	}
	for _, controller := range []string{"memory", ""} {
		group, ok := of[controller]
		if !ok {
			continue
		}
		if n := inode(root, path.Join("sys/fs/cgroup", controller, group)); n != 0 {
			return fmt.Sprintf("in-%d", n)
		}
	}
	return ""
}

// namesContainer reports whether mounts contain the hostname of a container. The one of a sandbox is that of a whole
// pod.
func namesContainer(mounts []byte) bool {
	for _, found := range inMounts.FindAllSubmatch(mounts, -1) {
		if string(found[1]) != "sandboxes" {
			return true
		}
	}
	return false
}

// inode returns the number of a file, or 0 if it cannot be read.
func inode(root fs.FS, name string) uint64 {
	info, err := fs.Stat(root, name)
	if err != nil {
		return 0
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}
