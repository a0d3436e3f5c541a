package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// The slots of user keys and fleets are on the masters that the Cluster's nodes report.
func TestMastersOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	client, ctx := cluster.Client(t), context.Background()
	m, err := MastersOf(ctx, client, nil)
	if err != nil || len(m.Addrs) != 3 {
		t.Fatalf("masters %v, %v", m, err)
	}
	for i, addr := range cluster.Addrs() {
		first, last := i*SlotCount/3, (i+1)*SlotCount/3-1
		if m.Addrs[m.BySlot[first]] != addr || m.Addrs[m.BySlot[last]] != addr {
			t.Errorf("slots %d to %d are said to be with %s and %s, want %s", first, last, m.Addrs[m.BySlot[first]], m.Addrs[m.BySlot[last]], addr)
		}
	}
	for _, said := range []string{"alice", "{", "a}b{c", strings.Repeat("x", 65), "\x00"} {
		user := NewUserKey(said)
		own := newKeyspace(t, "tl")
		for _, k := range []Keyspace{own, own.WithHashTags(48)} {
			if said := client.ClusterKeySlot(ctx, k.Key("r", user)).Val(); said != int64(k.Slot(user)) {
				t.Errorf("the slot of %q is %d, the server says %d", k.Key("r", user), k.Slot(user), said)
			}
		}
	}
}

// Nodes that have left the Cluster (CLUSTER RESET) say that no master has any slot. go-redis may ask one for a while, or
// for as long as it is among the client's addresses, and then names a random node for each slot. That is an error, after
// which the previous masters stay in force.
func TestMastersOfNodesThatHaveLeft(t *testing.T) {
	t.Parallel()
	left := []*redistest.Server{redistest.Start(t, "--cluster-enabled", "yes"), redistest.Start(t, "--cluster-enabled", "yes")}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{left[0].Addr(), left[1].Addr()}})
	defer client.Close()
	for range 3 {
		if m, err := MastersOf(t.Context(), client, nil); !errors.Is(err, errNoSlots) {
			t.Fatalf("masters %v, %v", m, err)
		}
	}
}

// Law 11: that no master has a slot is found out each time that the slot is looked at, every few seconds, also where only
// two nodes are left, of which go-redis names one by chance. Taken for a slot of one of them, it would make that master's
// shard settle.
func TestLaw11SlotsThatNoneOfTwoNodesHas(t *testing.T) {
	nodes, chance := []*redis.Client{{}, {}}, rand.New(rand.NewPCG(1, 2))
	masterOf := func(int) (*redis.Client, error) { return nodes[chance.IntN(2)], nil }
	const looks = 200_000 // twelve days of them
	missed := 0
	for range looks {
		if !changes(0, masterOf) {
			missed++
		}
	}
	if missed > 0 {
		t.Errorf("%d of %d looks took a slot that no master has for that of a node", missed, looks)
	}
}

// The keys of a fleet share the requested slot, and never equal a key of a user.
func TestFleetsMeetInAnySlot(t *testing.T) {
	k := newKeyspace(t, "tl")
	for slot := range uint16(SlotCount) {
		if slot%97 != 0 && slot != SlotCount-1 {
			continue
		}
		key := k.fleetKeyIn(slot)
		if keySlot(key) != slot || !strings.HasPrefix(key, "tl:{%fleet:") || keySlot(key+":unsettled") != slot {
			t.Fatalf("a fleet is to meet in slot %d by key %q, which is in slot %d", slot, key, keySlot(key))
		}
	}
}

// A fleet that moves to another slot does not count as smaller before all instances have moved.
func TestFleetsMove(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	const ttl = time.Second // the machine must not stand still for this long between two steps
	a, b := newFleet(t, client, "a", ttl), newFleet(t, client, "b", time.Minute)
	before := mustHeartbeat(t, b, false)
	if heard := mustHeartbeat(t, a, false); heard.Size != 2 || heard.Place != before.Place {
		t.Fatalf("%+v, %+v", before, heard)
	}
	a.MoveTo(77, 3)
	if a.Size() != 3 {
		t.Errorf("after moving, a fleet that is known to have 3 instances has %d", a.Size())
	}
	heard := mustHeartbeat(t, a, false)
	if heard.Size != 3 || a.Size() != 3 || heard.Place == before.Place || heard.Generation == before.Generation {
		t.Errorf("after moving alone: %+v", heard)
	}
	redistest.Eventually(t, "who has not moved counts no more", func() bool { mustHeartbeat(t, a, false); return a.Size() == 1 })
	b.MoveTo(77, 0)
	mustHeartbeat(t, b, false)
	if heard := mustHeartbeat(t, a, false); heard.Size != 2 {
		t.Errorf("after both have moved: %+v", heard)
	}
}
