package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/internal/state"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

const topUsage = `Usage: tierlimit top [flags] RULE

Lists the keys of a rule with the most units used or held at the moment. It goes through
all keys of the Redis with SCAN, and reads those of the rule, until it has seen as many keys
or taken as long as the flags allow; then it says that there may be fuller keys. It changes
nothing.

Flags:
`

// topFlags is the command line of top.
type topFlags struct {
	lookFlags
	show    int
	maxKeys int
	within  time.Duration
	rule    string
}

func parseTopFlags(args []string, stdout io.Writer) (topFlags, error) {
	var f topFlags
	set := newFlags("top")
	f.add(set)
	set.IntVar(&f.show, "n", 20, "`number` of keys to show")
	set.IntVar(&f.maxKeys, "max-keys", 1_000_000, "scan at most this `number` of keys, of any rule or program")
	set.DurationVar(&f.within, "time", 30*time.Second, "scan for at most this `time`")
	if err := parseFlags(set, args, topUsage, 1, stdout); err != nil {
		return f, err
	}
	f.rule = set.Arg(0)
	switch {
	case f.rule == "":
		return f, usageError{errors.New("no rule given")}
	case f.show < 1 || f.show > 10_000:
		return f, usageError{fmt.Errorf("-n %d: must be between 1 and 10,000", f.show)}
	case f.maxKeys < 1:
		return f, usageError{fmt.Errorf("-max-keys %d: must be at least 1", f.maxKeys)}
	case f.within <= 0:
		return f, usageError{fmt.Errorf("-time %v: must be longer than 0", f.within)}
	}
	if err := remote.CheckRuleName(f.rule); err != nil {
		return f, usageError{err}
	}
	return f, f.check()
}

func runTop(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parseTopFlags(args, stdout)
	if err != nil {
		return err
	}
	limitOf := func(remote.UserKey) (limit.Limit, error) { return f.limit, nil }
	if f.file != "" {
		file, err := loadRules(f.file)
		if err != nil {
			return err
		}
		defer file.close()
		if _, err := file.limitOf(f.rule, ""); err != nil { // the file has no such rule
			return err
		}
		limitOf = func(user remote.UserKey) (limit.Limit, error) {
			said, whole := user.Original()
			if !whole { // the file may have a limit for the key, but only its hash is known
				return limit.Limit{}, nil
			}
			return file.limitOf(f.rule, said)
		}
	}
	client, err := f.connect(stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	scan := &keyScan{flags: f, limitOf: limitOf, until: time.Now().Add(f.within)}
	if err := scan.all(ctx, client); err != nil {
		return fmt.Errorf("scanning the keys: %w", explainedToLook(err, f.prefix))
	}
	return scan.print(stdout)
}

// keyScan is one scan (SCAN) of the keys of a Redis.
type keyScan struct {
	flags   topFlags
	limitOf func(remote.UserKey) (limit.Limit, error) // zero if not known
	until   time.Time

	seen, ofRule int
	unread       int
	firstUnread  string
	stopped      string // why not all keys were seen; "" if all were
	part         bool   // the URL is of one node of a Cluster, which has a part of the keys
	fullest      []fullKey
}

type fullKey struct {
	user  remote.UserKey
	used  int64
	state *state.State
}

func (w *keyScan) all(ctx context.Context, client redis.UniversalClient) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		w.part = isOfCluster(ctx, client)
		return w.node(ctx, client)
	}
	masters := make(chan struct{}, 1) // so that nodes are scanned one after another
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		masters <- struct{}{}
		defer func() { <-masters }()
		return w.node(ctx, node)
	})
}

// isOfCluster reports whether a server is a node of a Cluster. A user without the right to INFO is not told.
func isOfCluster(ctx context.Context, client redis.Cmdable) bool {
	info, err := client.Info(ctx, "cluster").Result()
	return err == nil && strings.Contains(info, "cluster_enabled:1")
}

// pageSize is the number of keys that Redis looks at in one step of a SCAN.
const pageSize = 500

func (w *keyScan) node(ctx context.Context, node redis.Cmdable) error {
	for cursor := uint64(0); ; {
		switch {
		case w.seen >= w.flags.maxKeys:
			w.stopped = fmt.Sprintf("after about %s (-max-keys)", page.Count(w.seen, "key"))
			return nil
		case time.Now().After(w.until):
			w.stopped = fmt.Sprintf("after %s (-time)", limit.Per(1, w.flags.within).WindowString())
			return nil
		}
		size := min(pageSize, w.flags.maxKeys-w.seen)
		page, next, err := node.Scan(ctx, cursor, w.flags.keyspace.PatternOf(w.flags.rule), int64(size)).Result()
		if err != nil {
			return err
		}
		w.seen += size
		if err := w.read(ctx, node, page); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (w *keyScan) read(ctx context.Context, node redis.Cmdable, page []string) error {
	var keys []string
	var users []remote.UserKey
	var windows []int64 // of the keys, in µs; 0 if not known
	for _, key := range page {
		if user, ok := w.flags.keyspace.UserKeyOf(key, w.flags.rule); ok {
			l, err := w.limitOf(user)
			if err != nil {
				return err
			}
			window := windowOf(l)
			if w.flags.file == "" {
				window = 0 // -limit is the rule's limit; a key may have one of its own with a longer window
			}
			keys, users, windows = append(keys, key), append(users, user), append(windows, window)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	results, err := state.ReadAll(ctx, node, keys, windows)
	if err != nil {
		return err
	}
	for i, r := range results {
		w.ofRule++
		switch {
		case r.Err != nil:
			if w.unread++; w.firstUnread == "" {
				w.firstUnread = fmt.Sprintf("%q: %v", keys[i], r.Err)
			}
		case r.State != nil && r.State.Used() > 0:
			w.fullest = append(w.fullest, fullKey{users[i], r.State.Used(), r.State})
		}
	}
	slices.SortFunc(w.fullest, func(a, b fullKey) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.user, b.user))
	})
	// SCAN may return a key twice.
	w.fullest = slices.CompactFunc(w.fullest, func(a, b fullKey) bool { return a.user == b.user })
	w.fullest = w.fullest[:min(len(w.fullest), w.flags.show)]
	return nil
}

func (w *keyScan) print(out io.Writer) error {
	fmt.Fprintf(out, "rule %q: %s", w.flags.rule, page.Count(w.ofRule, "key"))
	if w.stopped != "" {
		fmt.Fprintf(out, "; stopped %s, so there may be more, and fuller ones", w.stopped)
	}
	fmt.Fprintln(out)
	if w.part {
		fmt.Fprintln(out, "This is one node of a Cluster: to see the keys of all nodes, give the address of a second one too, as in redis://host:6379?addr=other:6379.")
	}
	if w.unread > 0 {
		fmt.Fprintf(out, "%d of them could not be read; the first: %s\n", w.unread, w.firstUnread)
	}
	if len(w.fullest) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "units\tof\tkey\tlast change\tall free in")
	for _, k := range w.fullest {
		said, whole := k.user.Original()
		key := fmt.Sprintf("%q", said)
		if !whole {
			key = "a long key, with hash " + key
		}
		of := "-"
		l, err := w.limitOf(k.user)
		if err != nil {
			return err
		}
		if l != (limit.Limit{}) {
			of = fmt.Sprint(mostUnits(l, k.state))
		}
		free := "when released"
		if k.state.Holders == nil {
			free = duration(k.state.Units[len(k.state.Units)-1].LeavesUntil - k.state.Now)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s ago\t%s\n", k.used, of, key, duration(k.state.Now-k.state.Newest), free)
	}
	return t.Flush()
}
