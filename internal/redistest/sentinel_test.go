package redistest

import (
	"testing"
	"time"
)

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t)
	client := s.Client(t)
	if err := client.Set(t.Context(), "key", "before", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Wait(t.Context(), 1, 5*time.Second).Result(); n != 1 {
		t.Fatalf("%d replicas have the key, %v; want 1", n, err)
	}

	s.Master().Kill()
	err := poll(30*time.Second, func() error { return client.Set(t.Context(), "other", "after", 0).Err() })
	if err != nil {
		t.Fatalf("writing after the master was killed: %v", err)
	}
	if got, err := s.Replica().Client(t).MGet(t.Context(), "key", "other").Result(); err != nil || got[0] != "before" || got[1] != "after" {
		t.Errorf("the former replica has %v, %v; want what was written before and after", got, err)
	}
}
