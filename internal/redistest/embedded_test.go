package redistest

import (
	"testing"
	"time"
)

func TestEmbedded(t *testing.T) {
	t.Parallel()
	client, server := Embedded(t)
	if err := client.Set(t.Context(), "key", "value", time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	server.FastForward(time.Second)
	if n, err := client.Exists(t.Context(), "key").Result(); n != 0 || err != nil {
		t.Errorf("%d keys, %v, after the only one expired", n, err)
	}
}
