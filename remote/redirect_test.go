package remote

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// waits makes a Cluster's client wait for much longer than its contexts last.
func waits(o *redis.ClusterOptions) { o.ContextTimeoutEnabled, o.ReadTimeout = false, 20*time.Second }

// Laws 3 and 7: a master may not answer, or may redirect a command to one that does not answer. Then the run ends
// with its context, although the Cluster's client waits longer, and the caller learns that its entry may have been
// charged. The entry is charged at most once.
func TestLaw7ARedirectionToASilentMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	entry := Entry{Key: "{a}", Rule: newRule(t, limit.PerHour(10), limit.SlidingLog()), Cost: 1}
	var redirected [2]*Script // these learn that the slot has moved only from a redirection
	for i := range redirected {
		redirected[i] = NewScript(cluster.Client(t, waits))
		runAll(t, redirected[i], []Entry{entry})
	}
	slot := int(keySlot(entry.Key))
	from, to := cluster.Nodes()[0], cluster.Nodes()[1]
	if slot >= SlotCount/2 {
		from, to = to, from
	}
	cluster.MoveSlots(t, from, to, []int{slot}, func() {})
	if r := runAll(t, redirected[0], []Entry{entry})[0]; r.Status != Allowed || r.Remaining != 7 || r.Clock != 0 {
		t.Errorf("redirected: %+v, want the third of 10, and no clock, as it is another node's", r)
	}
	if !redirected[0].MayHaveChanged() || redirected[0].MayHaveChanged() {
		t.Error("a redirection is a sign, once, that masters have other slots")
	}
	direct := NewScript(cluster.Client(t, waits))
	if r := runAll(t, direct, []Entry{entry})[0]; r.Remaining != 6 || r.Clock == 0 {
		t.Errorf("directly: %+v", r)
	}

	if direct.MayHaveChanged() {
		t.Error("an answer is a sign of a change")
	}

	to.Pause()
	for name, script := range map[string]*Script{"directly": direct, "redirected": redirected[1]} {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		began := time.Now()
		_, err := script.Run(ctx, []Entry{entry}, 0)
		if took := time.Since(began); err == nil || KindOf(err) != Timeout || !MayHaveRun(err) || took > 10*time.Second {
			t.Errorf("%s: %v after %v", name, err, took)
		}
		cancel()
	}
	to.Resume()
	redirected[1].Wait() // waits for the goroutines left behind
	peek := Entry{Key: entry.Key, Rule: entry.Rule, Operation: lua.Peek, Cost: 1}
	if r := runAll(t, direct, []Entry{peek})[0]; r.Remaining < 4 || r.Remaining > 6 {
		t.Errorf("%d units are free of 10 after four charges and two that may have been made", r.Remaining)
	}
}

// Law 7: as long as the Cluster does not say which nodes are its masters, runs end with their contexts. The number
// of goroutines left behind stays within its bound.
func TestLaw7AClusterThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{silent.Addr().String()}, ReadTimeout: 20 * time.Second})
	defer client.Close()
	script := NewScript(client)
	entry := Entry{Key: "{a}", Rule: newRule(t, limit.PerHour(10), limit.SlidingLog()), Cost: 1}
	began := time.Now()
	for range 2 * maxStuck {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		if _, err := script.Run(ctx, []Entry{entry}, 0); err == nil || KindOf(err) != Timeout {
			t.Errorf("%v", err)
		}
		cancel()
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d runs of 10 ms took %v", 2*maxStuck, took)
	}
	if n := script.nodes.detached.count.Load(); n < 1 || n > maxStuck {
		t.Errorf("%d goroutines are left behind, at most %d may be", n, maxStuck)
	}
	b, _ := newBatcher(t, client, deadline(100*time.Millisecond), func(o *Options) { o.Inline = true })
	began = time.Now()
	if _, err := b.Decide(t.Context(), entry); !errors.Is(err, ErrNoAnswer) || time.Since(began) > 5*time.Second {
		t.Errorf("a caller that makes its own trip: %v after %v", err, time.Since(began))
	}
}

// Law 4: whichever node decides an entry that was redirected, the entry's not-after is no later than the deadline
// on the clock of any node that has answered.
func TestLaw4RedirectedEntriesExpireOnAnyClock(t *testing.T) {
	const behind, ahead = epoch, epoch + 3_000_000
	script := &Script{}
	ns := &script.nodes
	b := &Batcher{script: script}
	from, other := &node{clocks: newClocks(false)}, &node{clocks: newClocks(false)}
	ns.known.Store(&redis.Client{}, from)
	if entries := []Entry{{NotAfter: 7}}; true {
		ns.expireAnywhere(entries, nil)
		if entries[0].NotAfter != 7 {
			t.Errorf("not redirected: %d", entries[0].NotAfter)
		}
	}
	now := localTime()
	from.clocks.observe("", ahead+now, now, now)
	other.clocks.observe("", behind+now, now, now)
	ns.known.Store(new(redis.Client), other)
	deadline := now + 50_000
	for name, to := range map[string]*node{"unknown": nil, "new": {clocks: newClocks(false)}} {
		if late := b.notAfter(to, &Entry{Rule: &Rule{}}, deadline) - (behind + deadline); late > 0 || late < -1000 {
			t.Errorf("of a node that is %s, the not-after is %d µs late on the clock that is behind", name, late)
		}
	}
	entries := []Entry{{NotAfter: from.clocks.notAfter("", deadline)}, {}}
	ns.expireAnywhere(entries, from)
	if late := entries[0].NotAfter - (behind + deadline); late > 0 || late < -1000 {
		t.Errorf("the not-after is %d µs late on the clock that is behind", late)
	}
	if entries[1].NotAfter != 0 {
		t.Errorf("an entry without a not-after has got one: %d", entries[1].NotAfter)
	}
	entries = []Entry{{NotAfter: other.clocks.notAfter("", deadline)}}
	if ns.expireAnywhere(entries, other); entries[0].NotAfter < behind+deadline-1000 || entries[0].NotAfter > behind+deadline {
		t.Errorf("from the clock that is behind: %d µs late", entries[0].NotAfter-behind-deadline)
	}
	fresh := &node{clocks: newClocks(false)} // redirects before its clock is known
	entries = []Entry{{NotAfter: b.notAfter(fresh, &Entry{Rule: &Rule{}}, deadline)}}
	if ns.expireAnywhere(entries, fresh); entries[0].NotAfter < behind+deadline-1000 || entries[0].NotAfter > behind+deadline {
		t.Errorf("from a node whose clock is not known: %d µs late", entries[0].NotAfter-behind-deadline)
	}
	var none nodes // all nodes have been forgotten
	entries = []Entry{{NotAfter: from.clocks.notAfter("", deadline)}}
	if none.expireAnywhere(entries, from); entries[0].NotAfter < ahead+deadline-1000 || entries[0].NotAfter > ahead+deadline {
		t.Errorf("no other clock is known: %d µs late", entries[0].NotAfter-ahead-deadline)
	}
}

// Law 4: an entry that arrives too late charges nothing, alone or with others, also if a master with another clock
// decides it after a redirection.
func TestLaw4RedirectedEntriesAreNotLate(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	const key = "{a}"
	rule := newRule(t, limit.PerHour(10), limit.SlidingLog())
	slot := int(keySlot(key))
	from, to := cluster.Nodes()[0], cluster.Nodes()[1]
	if slot >= SlotCount/2 {
		from, to = to, from
	}
	scripts := make(map[int]*Script) // by the number of entries
	for _, n := range []int{1, 2} {
		s := NewScript(cluster.Client(t))
		runAll(t, s, []Entry{{Key: key, Rule: rule, Cost: 1}})
		now, clock := localTime(), time.Now().UnixMicro()
		// Make it look as if the master that has the slot now were an hour ahead of the other one.
		s.nodeOf(t.Context(), key).clocks.observe("", clock+time.Hour.Microseconds(), now, now)
		s.nodeOf(t.Context(), "{b}").clocks.observe("", clock, now, now)
		scripts[n] = s
	}
	cluster.MoveSlots(t, from, to, []int{slot}, func() {})
	for n, s := range scripts { // each script learns of the move from a redirection, and so only once
		at := s.nodeOf(t.Context(), key)
		for _, late := range []bool{true, false} {
			deadline := localTime() + time.Minute.Microseconds()
			want := Allowed
			if late {
				deadline, want = localTime()-time.Second.Microseconds(), Expired
			}
			var entries []Entry
			for i := range n {
				entries = append(entries, Entry{Key: key + []string{"", "2"}[i], Rule: rule, Cost: 1, NotAfter: at.clocks.notAfter(key, deadline)})
			}
			for i, r := range runAll(t, s, entries) {
				if r.Status != want {
					t.Errorf("%d entries, late %v: entry %d: %+v", n, late, i, r)
				}
			}
		}
	}
}

// A command that is still redirected after the Cluster's client has followed redirections is about a slot that moves.
func TestRedirectLoopsAreMarked(t *testing.T) {
	for text, loops := range map[string]bool{"MOVED 1 127.0.0.1:1": true, "ASK 1 127.0.0.1:1": true, "LOADING": false, "": false} {
		cmd := redis.NewCmd(t.Context())
		if text != "" {
			cmd.SetErr(refusal(text))
		}
		markRedirectLoop(cmd)
		if err := cmd.Err(); IsMoving(err) != loops || (err == nil) != (text == "") {
			t.Errorf("%q becomes %v", text, err)
		}
	}
}
