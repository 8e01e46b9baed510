//! A part that most of many owners have nothing of: one word until there is something.

/// Nothing, or something worth an allocation.
#[derive(Debug)]
pub(crate) struct OptionBox<T>(Option<Box<T>>);

impl<T> OptionBox<T> {
    pub(crate) const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Gives back the memory if it turns out that nothing is left.
    pub(crate) fn clear_if(&mut self, is_over: impl FnOnce(&mut T) -> bool) {
        self.0.take_if(|part| is_over(part));
    }
}

impl<T: Default> OptionBox<T> {
    pub(crate) fn get_or_insert_default(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T> From<T> for OptionBox<T> {
    fn from(part: T) -> Self {
        Self(Some(Box::new(part)))
    }
}

impl<T> Default for OptionBox<T> {
    fn default() -> Self {
        Self(None)
    }
}
