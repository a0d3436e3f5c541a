package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// cluster is masters that only this run uses, with equal parts of the slots.
type cluster struct {
	servers  []*server
	controls []*redis.Client
}

// startCluster starts the masters, and returns when all of them know that the Cluster is complete.
func startCluster(ctx context.Context, name string, masters int) (c *cluster, err error) {
	c = &cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting a Cluster of %d masters: %w", masters, err), c.stop())
		}
	}()
	for i := range masters {
		s, err := startServer(ctx, name, "--cluster-enabled", "yes")
		if err != nil {
			return c, err
		}
		c.servers = append(c.servers, s)
		control, err := newControl(s.url())
		if err != nil {
			return c, err
		}
		c.controls = append(c.controls, control)
		if err := control.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
			return c, err
		}
		host, port, err := net.SplitHostPort(c.servers[0].addr)
		if err != nil {
			return c, err
		}
		if err := control.ClusterMeet(ctx, host, port).Err(); err != nil {
			return c, err
		}
	}
	for _, control := range c.controls {
		if err := isComplete(ctx, control, masters); err != nil {
			return c, err
		}
	}
	return c, nil
}

// isComplete returns when a master knows all masters, and knows that they serve all slots.
func isComplete(ctx context.Context, master *redis.Client, masters int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		info, err := master.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d\r\n", masters)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last of CLUSTER INFO:\n%s", ctx.Err(), info)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *cluster) environment(pool int) environment {
	e := environment{pool: pool}
	for _, s := range c.servers {
		e.nodes = append(e.nodes, s.addr)
	}
	return e
}

func (c *cluster) stop() (err error) {
	for _, control := range c.controls {
		err = errors.Join(err, control.Close())
	}
	for _, s := range c.servers {
		s.stop()
	}
	return err
}
