package redistest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// At most three Clusters are in use at once. The other tests wait, and then use theirs. This shows only if more than
// three parallel tests run at once, as scripts/go-test sets.
func TestClustersInUseAreLimited(t *testing.T) {
	t.Parallel()
	var inUse, most atomic.Int64
	t.Run("at once", func(t *testing.T) {
		for i := range 4 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				StartCluster(t, 1)
				n := inUse.Add(1)
				defer inUse.Add(-1)
				for {
					old := most.Load()
					if n <= old || most.CompareAndSwap(old, n) {
						break
					}
				}
				time.Sleep(300 * time.Millisecond) // the other Clusters start meanwhile
			})
		}
	})
	if n := most.Load(); n > int64(cap(clustersInUse)) {
		t.Errorf("%d Clusters were in use at once", n)
	}
}
