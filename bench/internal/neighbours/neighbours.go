// Package neighbours is other clients of a Redis server, which keep it busy.
package neighbours

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Count is the number of clients. A request waits for the commands of all of them.
const Count = 4

// Neighbours are clients that make a command again and again. They leave Redis so little time that one process can
// easily offer more than Redis can decide.
type Neighbours struct {
	stop    atomic.Bool
	running sync.WaitGroup
	mu      sync.Mutex
	err     error
}

// Sleep returns a command for which Redis sleeps for the given time. So it needs a processor for a small part of its
// time only, as if it had a machine of its own. The server must have been started with --enable-debug-command yes.
func Sleep(d time.Duration) []any { return []any{"DEBUG", "SLEEP", fmt.Sprint(d.Seconds())} }

// Start starts the clients, on connections of one client. It must have as many as Count.
func Start(ctx context.Context, client *redis.Client, command []any) *Neighbours {
	n := &Neighbours{}
	for range Count {
		n.running.Go(func() {
			for !n.stop.Load() {
				if err := client.Do(ctx, command...).Err(); err != nil {
					n.mu.Lock()
					n.err = errors.Join(n.err, err)
					n.mu.Unlock()
					return
				}
			}
		})
	}
	return n
}

// Leave stops the clients, and returns their errors when they have ended.
func (n *Neighbours) Leave() error {
	n.stop.Store(true)
	n.running.Wait()
	return n.err
}
