package main

import (
	"fmt"
	"net/url"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// clientOptions returns the options of every subject's client: go-redis's defaults, without features that only some
// servers understand.
func clientOptions(e environment) (*redis.Options, error) {
	url := e.url
	if e.nodes != nil {
		url = "redis://" + e.nodes[0]
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	if o.Network != "tcp" {
		return nil, fmt.Errorf("-redis: %s is a %s address; subjects are compared over TCP", o.Addr, o.Network)
	}
	o.PoolSize = e.pool
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}

// newAnyClient returns a client of the environment's Cluster, or of its server if there is no Cluster.
func newAnyClient(e environment) (redis.UniversalClient, error) {
	if e.nodes == nil {
		return newClient(e)
	}
	o, err := universalOptions(e)
	if err != nil {
		return nil, err
	}
	return redis.NewClusterClient(o.Cluster()), nil
}

func newClient(e environment) (*redis.Client, error) {
	o, err := clientOptions(e)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

// newControl returns a client for work that is not measured.
func newControl(url string) (*redis.Client, error) {
	return newClient(environment{url: url, pool: 1})
}

// onHost returns the URL with another host and port.
func onHost(original, host string) (string, error) {
	u, err := url.Parse(original)
	if err != nil {
		return "", err
	}
	u.Host = host
	return u.String(), nil
}
