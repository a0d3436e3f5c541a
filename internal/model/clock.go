package model

// clock is a key's own clock, which never goes back behind the key's last charge. If the outer clock does (it was
// set back, or another server took over), the key's clock waits at the last charge, and from then on runs ahead of
// the outer clock by the difference. So no charge is forgotten or lies in the future, and no key is locked until
// the outer clock has caught up.
type clock struct {
	used   bool  // whether anything was ever charged
	newest int64 // the key's time at the last charge
	offset int64 // how far the key's clock is ahead of the outer one; only grows
}

// read returns the key's time at the outer time now. If it corrects the offset, the correction stays, whether the
// request is then granted or denied.
func (c *clock) read(now int64) int64 {
	t := now + c.offset
	if c.used && t < c.newest {
		c.offset += c.newest - t
		t = c.newest
	}
	return t
}

// charged records that something was charged at the key's time t.
func (c *clock) charged(t int64) {
	c.used = true
	c.newest = t
}
