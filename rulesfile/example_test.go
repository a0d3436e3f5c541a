// The stand-in for Redis needs a 64-bit platform.

//go:build !(386 || arm || mips || mipsle)

package rulesfile_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/rulesfile"
	"github.com/tierlimit/tierlimit/tiered"
)

// This example decides by a rule of a file, before and after the file is changed. A service would have
// the file watched: go rules.Watch(ctx).
func Example() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	limiter, err := tiered.New(redis.NewClient(&redis.Options{Addr: server.Addr()}), tiered.Deadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "rules.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}

	write(`
rules:
  search:
    limit: 60/1m
    plans: {gold: 1000/1m}
    keys: {tenant-7: gold}
`)
	rules, err := rulesfile.Load(limiter, path)
	if err != nil {
		log.Fatal(err)
	}
	search, err := rules.Rule("search")
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range []string{"tenant-7", "tenant-8"} {
		d, err := search.Allow(context.Background(), tenant)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tenant, d.Allowed, d.Remaining)
	}

	write(`rules: {search: {limit: 90/1m}}`)
	if err := rules.Reload(); err != nil {
		log.Fatal(err)
	}
	d, err := search.Allow(context.Background(), "tenant-8")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("tenant-8", d.Allowed, d.Remaining)
	// Output:
	// tenant-7 true 999
	// tenant-8 true 59
	// tenant-8 true 88
}
