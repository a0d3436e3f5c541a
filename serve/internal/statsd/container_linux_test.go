package statsd

import (
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// The container is found where Datadog's client finds it.
func TestContainer(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	const uuid, task = "34dc0b5e-626f-2c5c-4c51-70e34b10e765", "432624d2150b349fe35ba397284dea78-1234567890"
	mount := "66 44 254:0 /var/lib/docker/containers/" + id + "/hostname /etc/hostname rw - ext4 /dev/vda rw\n"
	sandbox := "66 44 254:0 /run/containerd/sandboxes/" + id + "/hostname /etc/hostname rw - ext4 /dev/vda rw\n"
	for name, c := range map[string]struct {
		host           bool
		groups, mounts string
		want           string
	}{
		"no files":                     {false, "", "", ""},
		"a host":                       {true, "12:memory:/user.slice\n0::/init.scope\n", "", ""},
		"ID":                           {true, "12:cpu:/\n3:memory:/kubepods/pod1/" + id + "\n0::/x\n", "", id},
		"ID of systemd's scope":        {true, "0::/system.slice/docker-" + id + ".scope\n", "", id},
		"UUID":                         {true, "1:name=systemd:/garden/" + uuid + "\n", "", uuid},
		"task of ECS":                  {true, "9:perf_event:/ecs/" + task + "\n", "", task},
		"an ID that is no name":        {true, "0::/docker/" + id + "/init\n", "", ""},
		"the host's mounts":            {true, "0::/\n", mount, ""},
		"inode":                        {false, "0::/\n", mount, "in-7"},
		"inode of a subgroup":          {false, "0::/sub\n", mount, "in-8"},
		"inode of the memory group":    {false, "0::/sub\n3:memory:/m\n", mount, "in-9"},
		"memory group that is missing": {false, "3:memory:/none\n0::/\n", mount, "in-7"},
		"group that is missing":        {false, "0::/none\n", mount, ""},
		"sandbox":                      {false, "0::/\n", sandbox, ""},
		"sandbox and container":        {false, "0::/\n", sandbox + mount, "in-7"},
		"no container's mounts":        {false, "0::/\n", "66 44 254:0 / / rw - ext4 /dev/vda rw\n", ""},
	} {
		numbered := func(n uint64) *fstest.MapFile { return &fstest.MapFile{Sys: &syscall.Stat_t{Ino: n}} }
		files := fstest.MapFS{
			"proc/self/cgroup": {Data: []byte(c.groups)}, "proc/self/mountinfo": {Data: []byte(c.mounts)},
			"sys/fs/cgroup/sub": numbered(8), "sys/fs/cgroup/memory/m": numbered(9),
			"proc/self/ns/cgroup": numbered(4026532000),
		}
		files["sys/fs/cgroup"] = numbered(7)
		files["sys/fs/cgroup"].Mode = 0o755 | 1<<31 // a directory
		if c.host {
			files["proc/self/ns/cgroup"] = numbered(hostCgroups)
		}
		if got := containerAt(files); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := containerAt(fstest.MapFS{}); got != "" {
		t.Errorf("%q without files", got)
	}
}
