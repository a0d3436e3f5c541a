package standin

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Keys live for their whole TTL, however shortly before a sweep they were written.
func TestLaw8KeysDoNotExpireEarly(t *testing.T) {
	start0 := time.Now()
	now := start0
	s, err := start(func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := redis.NewClient(s.Options())
	defer client.Close()
	at := func(passed time.Duration) { now = start0.Add(passed) }
	write := redis.NewScript("return redis.call('SET', KEYS[1], 'x', 'PX', '500')")
	ctx := t.Context()

	at(900 * time.Millisecond)
	for _, err := range []error{
		client.Set(ctx, "set", "x", 500*time.Millisecond).Err(),
		client.Set(ctx, "expire", "x", 0).Err(),
		client.PExpire(ctx, "expire", 500*time.Millisecond).Err(),
		write.Run(ctx, client, []string{"script"}).Err(),
		client.Set(ctx, "long", "x", time.Second).Err(), // go-redis sends EX 1
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		passed time.Duration
		short  int64
		long   int64
	}{
		{1000 * time.Millisecond, 3, 1},
		{1399 * time.Millisecond, 3, 1},
		{1400 * time.Millisecond, 0, 1},
		{1899 * time.Millisecond, 0, 1},
		{2900 * time.Millisecond, 0, 0}, // whole seconds are rounded up
	} {
		at(step.passed)
		s.expiry.sweep()
		short, long := client.Exists(ctx, "set", "expire", "script").Val(), client.Exists(ctx, "long").Val()
		if short != step.short || long != step.long {
			t.Errorf("after %v: %d and %d keys, want %d and %d", step.passed, short, long, step.short, step.long)
		}
	}
}

// Sweeps take at most a twentieth of the time, however many keys there are.
func TestPauses(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: time.Second, 50 * time.Millisecond: time.Second, time.Second: 20 * time.Second} {
		if got := pause(took); got != want {
			t.Errorf("%v after a sweep of %v, want %v", got, took, want)
		}
	}
}

// Law 7: nothing is kept of keys that have expired. It would take the memory of a process that limits ever new keys.
func TestLaw7NothingIsKeptOfExpiredKeys(t *testing.T) {
	now := time.Now()
	s, err := start(func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	db := s.redis.DB(0)
	kept := func() (entries int) { // in all maps of the database
		v := reflect.ValueOf(db).Elem()
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.Map {
				entries += v.Field(i).Len()
			}
		}
		return entries
	}
	for i := range maxVersions + 1 {
		key := strconv.Itoa(i)
		if err := db.Set(key, "x"); err != nil {
			t.Fatal(err)
		}
		s.redis.SetTTL(key, time.Second)
	}
	if n := kept(); n < maxVersions {
		t.Errorf("%d entries at first", n)
	}
	now = now.Add(time.Second)
	s.expiry.sweep()
	if n := kept(); n != 0 {
		t.Errorf("%d entries are kept", n)
	}
}
