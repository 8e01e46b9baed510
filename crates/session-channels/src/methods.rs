//! The methods that every endpoint has besides its messages. `proto!` calls these in its `impl`
//! blocks, so that they are read once here and not written out by a macro for every state.

/// What an endpoint that may have to wait for room can do besides sending.
#[doc(hidden)]
#[macro_export]
macro_rules! __room_methods {
    () => {
        /// Waits until a send would not wait, and sends nothing. Also ready when the other side is
        /// gone. Dropping it loses nothing.
        #[inline]
        pub async fn room(&mut self) {
            ::core::future::poll_fn(|context| self.0.poll_room(context)).await
        }

        /// Whether a send would not wait.
        #[inline]
        pub fn has_room(&self) -> bool {
            self.0.has_room()
        }

        /// For a readiness loop: whether a send would not wait; if it would, this waker is woken
        /// once when that changes.
        #[inline]
        pub fn arm(&mut self, waker: &::core::task::Waker) -> bool {
            self.0.arm_room(waker)
        }
    };
}

/// What an endpoint that receives these messages can do.
#[doc(hidden)]
#[macro_export]
macro_rules! __receive_methods {
    ($message:ty) => {
        /// Waits until there is something to receive, and takes nothing. Also ready when the other
        /// side is gone. Dropping it loses nothing.
        #[inline]
        pub fn ready(&mut self) -> $crate::rt::Ready<'_, Self> {
            $crate::rt::Ready::new(self)
        }

        /// Whether a receive would not wait.
        #[inline]
        pub fn is_ready(&self) -> bool {
            $crate::rt::is_ready(self)
        }

        /// Receives a message, with the next endpoint in it. Dropped before it is done, it closes
        /// the session.
        #[inline]
        pub fn recv(self) -> $crate::rt::Recv<Self> {
            $crate::rt::Recv::new(self)
        }

        /// Receives a message, with the next endpoint in it; the thread waits.
        #[inline]
        pub fn recv_blocking(self) -> ::core::result::Result<$message, $crate::Closed> {
            $crate::rt::recv_blocking(self)
        }

        /// Receives a message that has come; if none has, the endpoint is given back.
        #[inline]
        pub fn try_recv(self) -> ::core::result::Result<$message, $crate::Unreceived<Self>> {
            $crate::rt::try_recv(self)
        }

        /// Receives a message if it comes within this time; if none does, the endpoint is given
        /// back.
        #[inline]
        pub fn recv_timeout(
            self,
            timeout: ::core::time::Duration,
        ) -> $crate::rt::RecvDeadline<Self> {
            $crate::rt::RecvDeadline::after(self, timeout)
        }

        /// Receives a message if it comes by then; if none does, the endpoint is given back.
        #[inline]
        pub fn recv_deadline(
            self,
            deadline: ::std::time::Instant,
        ) -> $crate::rt::RecvDeadline<Self> {
            $crate::rt::RecvDeadline::at(self, deadline)
        }

        /// Receives a message if it comes within this time, the thread waiting; if none does, the
        /// endpoint is given back.
        #[inline]
        pub fn recv_timeout_blocking(
            self,
            timeout: ::core::time::Duration,
        ) -> ::core::result::Result<$message, $crate::Unreceived<Self>> {
            $crate::rt::recv_timeout_blocking(self, timeout)
        }

        /// Receives a message if it comes by then, the thread waiting; if none does, the endpoint
        /// is given back.
        #[inline]
        pub fn recv_deadline_blocking(
            self,
            deadline: ::std::time::Instant,
        ) -> ::core::result::Result<$message, $crate::Unreceived<Self>> {
            $crate::rt::recv_deadline_blocking(self, deadline)
        }

        /// For a readiness loop: whether a receive would not wait; if it would, this waker is woken
        /// once when that changes.
        #[inline]
        pub fn arm(&mut self, waker: &::core::task::Waker) -> bool {
            $crate::rt::arm(self, waker)
        }
    };
}
