package tiered

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// The keys and commands that the README names are all that a Redis user needs;
// with less, New says that it is about permissions.
func TestLeastPrivilege(t *testing.T) {
	server := redistest.Start(t)
	admin, ctx := server.Client(t), context.Background()
	rights := []any{
		"ACL", "SETUSER", "limiter", "on", ">secret", "~tl:*",
		"+evalsha", "+eval", "+script|load", "+time", "+get", "+set", "+del", "+getrange", "+setrange",
		"+pexpire", "+pexpireat", "+pttl", "+zadd", "+zrem", "+zremrangebyscore", "+zcard",
	}
	as := func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" }

	if err := admin.Do(ctx, rights[:len(rights)-4]...).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := New(server.Client(t, as)); !errors.Is(err, limit.ErrAuth) {
		t.Errorf("without the rights that a heartbeat needs: %v", err)
	}

	if err := admin.Do(ctx, rights...).Err(); err != nil {
		t.Fatal(err)
	}
	l := newLimiterOn(t, server.Client(t, as), "tl", RememberDenials(0))
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
