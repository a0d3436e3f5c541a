package main

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// clientOptions are go-redis's defaults, for every subject, without what only
// some servers understand.
func clientOptions(url string, pool int) (*redis.Options, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	if o.Network != "tcp" {
		return nil, fmt.Errorf("-redis: %s is a %s address; subjects are compared over TCP", o.Addr, o.Network)
	}
	o.PoolSize = pool
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}

func newClient(url string, pool int) (*redis.Client, error) {
	o, err := clientOptions(url, pool)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}
