package tiered

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// leastRights are the keys and commands that the README names.
var leastRights = []any{
	"ACL", "SETUSER", "limiter", "on", ">secret", "~tl:*",
	"+evalsha", "+eval", "+script|load", "+time", "+get", "+set", "+del", "+getrange", "+setrange",
	"+pexpire", "+pexpireat", "+pttl", "+zadd", "+zrem", "+zremrangebyscore", "+zcard",
}

// The keys and commands that the README names are all that a Redis user needs; with
// less, New says that it is about permissions.
func TestLeastPrivilege(t *testing.T) {
	server := redistest.Start(t)
	admin, ctx := server.Client(t), context.Background()
	as := func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" }

	if err := admin.Do(ctx, leastRights[:len(leastRights)-4]...).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := New(server.Client(t, as)); !errors.Is(err, limit.ErrAuth) {
		t.Errorf("without the rights that a heartbeat needs: %v", err)
	}

	if err := admin.Do(ctx, leastRights...).Err(); err != nil {
		t.Fatal(err)
	}
	checkAllAlgorithms(t, newLimiterOn(t, server.Client(t, as), "tl", RememberDenials(0)))
}

// On a Cluster the client also asks who has which slots, and follows slots that move.
func TestLeastPrivilegeOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	for _, node := range cluster.Nodes() {
		rights := append(slices.Clone(leastRights), "+cluster|slots", "+asking")
		if err := node.Client(t).Do(context.Background(), rights...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	client := cluster.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "limiter", "secret" })
	l := newLimiterOn(t, client, "tl", RememberDenials(0))
	checkAllAlgorithms(t, l)
	// All slots of the first node are on their way, and none of their keys: every
	// command that it gets is sent on.
	from, to := cluster.Nodes()[0], cluster.Nodes()[1]
	var slots []int
	for slot := range 64 {
		slots = append(slots, slot)
	}
	// Among them is that in which the fleet meets, whose keys are apart for a while.
	for _, s := range l.shards.InUse() {
		if addr, _, fleet := s.Where(); addr == from.Addr() {
			slots = append(slots, int(fleet))
		}
	}
	cluster.MoveSlots(t, from, to, slots, func() {
		r := newRule(t, newLimiterOn(t, client, "tl", RememberDenials(0)), "moving", limit.PerMinute(300))
		for i := range 2000 {
			if d := mustAllow(t, r, fmt.Sprint("k", i), 1); d.Tier != limit.TierRedis {
				t.Fatalf("%+v", d)
			}
		}
		for _, s := range r.limiter.shards.InUse() {
			if err := s.Heartbeat(r.limiter.config.deadline); err != nil {
				t.Errorf("a heartbeat while its slot is moving: %v", err)
			}
		}
	})
}

func checkAllAlgorithms(t *testing.T, l *Limiter) {
	t.Helper()
	for _, a := range limit.Algorithms() {
		r := newRule(t, l, a.Name(), limit.PerMinute(300).WithBurst(300), Use(a))
		for i := range 4 {
			d := mustAllow(t, r, "k", 100)
			if d.Tier != limit.TierRedis || d.Allowed != (i < 3) {
				t.Errorf("%v, request %d: %+v", a, i, d)
			}
		}
	}
}
