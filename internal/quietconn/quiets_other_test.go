//go:build !linux || race || 386

package quietconn

const quiets = false
