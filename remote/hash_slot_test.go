package remote

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// keySlot returns the slots of the examples in the Redis Cluster specification.
func TestKeySlotExamples(t *testing.T) {
	if got := keySlot("123456789"); got != 0x31C3 {
		t.Errorf("CRC16 of 123456789 is %#x, want 0x31C3", got)
	}
	for key, hashed := range map[string]string{
		"{user1000}.following": "user1000",
		"foo{{bar}}zap":        "{bar",
		"foo{bar}{zap}":        "bar",
	} {
		if keySlot(key) != keySlot(hashed) {
			t.Errorf("%q is not in the slot of %q", key, hashed)
		}
	}
	if keySlot("foo{}{bar}") == keySlot("bar") {
		t.Error("an empty tag let the next one choose the slot")
	}
}

// keySlot returns the same slot as a server for every key.
func TestKeySlotEqualsTheServers(t *testing.T) {
	client := redistest.Start(t, "--cluster-enabled", "yes").Client(t)
	ctx := context.Background()
	drawKey := rapid.OneOf(
		drawUserKey,
		rapid.StringOf(rapid.SampledFrom([]rune("ab{}"))),
		rapid.Custom(func(t *rapid.T) string {
			return newKeyspace(t, "rl").Key(drawRuleName.Draw(t, "rule"), NewUserKey(drawUserKey.Draw(t, "user key")))
		}),
	)
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(drawKey, 1, 100).Draw(t, "keys")
		pipe := client.Pipeline()
		for _, key := range keys {
			pipe.ClusterKeySlot(ctx, key)
		}
		replies, err := pipe.Exec(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i, reply := range replies {
			want := reply.(interface{ Val() int64 }).Val()
			if got := int64(keySlot(keys[i])); got != want {
				t.Fatalf("the slot of %q is %d, the server says %d", keys[i], got, want)
			}
		}
	})
}
