// Package redistest gives tests a real Redis: servers of their own that can be frozen, killed and restarted, one
// server shared by a package's tests, a Cluster (with replicas, and slots that move) and a Sentinel. It also has a
// way to wait for conditions, [Eventually].
//
// Servers listen on free loopback ports, and keep nothing on disk. They are ended by process ID when the test that
// started them ends. On Linux they also end with the test binary when that is killed.
//
// A test that needs a server and finds none fails. It is never skipped, so a green run always means that everything
// ran.
package redistest
