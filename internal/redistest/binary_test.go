package redistest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindBinary(t *testing.T) {
	with := func(names ...string) string {
		dir := t.TempDir()
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	own := filepath.Join(with("mine"), "mine")

	for _, c := range []struct {
		name, path, chosen string
		want               string // the end of the path found
		wantErr            string // or a part of the error
	}{
		{name: "redis", path: with("redis-server", "valkey-server"), want: "/redis-server"},
		{name: "valkey", path: with("valkey-server"), want: "/valkey-server"},
		{name: "chosen", path: with("redis-server"), chosen: own, want: "/mine"},
		{name: "none", path: with(), wantErr: "make test"},
		{name: "chosen but absent", path: with("redis-server"), chosen: "/no/such/server", wantErr: `TIERLIMIT_REDIS_SERVER="/no/such/server"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			t.Setenv(binaryVariable, c.chosen)
			got, err := findBinary()
			switch {
			case c.wantErr == "" && (err != nil || !strings.HasSuffix(got, c.want)):
				t.Errorf("findBinary() = %q, %v; want a path ending in %q", got, err, c.want)
			case c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
				t.Errorf("findBinary() = %q, %v; want an error with %q", got, err, c.wantErr)
			}
		})
	}
}
