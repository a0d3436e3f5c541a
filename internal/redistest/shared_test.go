package redistest

import (
	"strings"
	"testing"
)

func TestShared(t *testing.T) {
	t.Parallel()
	a, b := Shared(t), Shared(t)
	if a != b {
		t.Errorf("Shared gave %v, then %v; want one server", a, b)
	}
	if err := a.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestSharedCluster(t *testing.T) {
	t.Parallel()
	a, b := SharedCluster(t), SharedCluster(t)
	if a != b || len(a.Addrs()) != 3 {
		t.Errorf("SharedCluster gave %v, then %v; want one Cluster of three", a.Addrs(), b.Addrs())
	}
	if err := a.Client(t).Set(t.Context(), Prefix(), 1, 0).Err(); err != nil {
		t.Error(err)
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	a, b := Prefix(), Prefix()
	if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
		t.Errorf("prefixes %q and %q overlap", a, b)
	}
}
