//! The engine of a worker: looked for once, known before it has said everything, the same for an attempt's whole life.

use std::path::{Path, PathBuf};

use tokio::sync::{OnceCell, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::container::discover::{self, DiscoverError, EngineChoice, Surroundings};
use crate::container::{Engine, EngineInfo, Image, Reached, image};

/// Which engine a worker uses. It is looked for once, when it is first needed.
#[derive(Debug)]
pub struct EngineSource {
    choice: Option<EngineChoice>,
    around: Surroundings,
    engine: OnceCell<Engine>,
    answered: watch::Sender<Option<Reached>>,
    memory: Option<PathBuf>,
}

impl EngineSource {
    /// `choice` is what the flag or the configuration names.
    #[must_use]
    pub fn new(choice: Option<EngineChoice>, around: Surroundings) -> Self {
        Self { choice, around, engine: OnceCell::new(), answered: watch::Sender::new(None), memory: None }
    }

    /// Keeps what the engine is in a file, so that the next process need not wait for it to say so
    /// ([`EngineSource::early`]).
    #[must_use]
    pub fn remembering(self, file: PathBuf) -> Self {
        Self { memory: Some(file), ..self }
    }

    /// The engine.
    ///
    /// # Errors
    /// None answers; the error names every candidate that was tried.
    pub async fn get(&self) -> Result<Engine, DiscoverError> {
        let answered = |reached: &Reached| {
            self.answered.send_replace(Some(reached.clone()));
        };
        let find = || async {
            let engine = discover::connect_and_tell(self.choice.as_ref(), &self.around, answered).await?;
            if let Some(file) = &self.memory {
                remember(file, engine.info());
            }
            Ok(engine)
        };
        self.engine.get_or_try_init(find).await.cloned()
    }

    /// The engine as soon as it answers, and true if it is only remembered what it is: [`EngineSource::get`] confirms that,
    /// before anything relies on it for good.
    ///
    /// # Errors
    /// As for [`EngineSource::get`].
    pub(super) async fn early(&self) -> Result<(Engine, bool), DiscoverError> {
        tokio::select! {
            biased;
            engine = self.get() => engine.map(|engine| (engine, false)),
            engine = self.recalled() => Ok((engine, true)),
        }
    }

    /// Never ends where nothing is remembered of the engine that answers.
    async fn recalled(&self) -> Engine {
        let mut answered = self.answered.subscribe();
        loop {
            let reached = answered.borrow_and_update().clone();
            let remembered = || self.memory.as_deref().and_then(recall);
            if let Some(engine) = reached.and_then(|reached| reached.recall(remembered()?)) {
                return engine;
            }
            if answered.changed().await.is_err() {
                break;
            }
        }
        std::future::pending().await
    }

    /// Waits until an engine has answered that is being looked for ([`EngineSource::get`]), whatever it turns out to be.
    pub(crate) async fn answer(&self) {
        let mut answered = self.answered.subscribe();
        let _ = answered.wait_for(Option::is_some).await; // the sender is ours: it lives as long as we
    }

    /// Looks at an image as soon as the engine answers that is being looked for, while it still says what it is.
    pub(super) fn look_ahead(&self, image: &image::Reference) -> LookAhead {
        let (mut answered, image) = (self.answered.subscribe(), image.clone());
        let looking = AbortOnDropHandle::new(tokio::spawn(async move {
            let reached = answered.wait_for(Option::is_some).await.ok()?.clone()?;
            reached.image(image.as_str()).await.ok()?
        }));
        LookAhead { answered: self.answered.subscribe(), looking }
    }

    /// What was named when this was made.
    pub(super) const fn choice(&self) -> Option<&EngineChoice> {
        self.choice.as_ref()
    }

    /// The engine that an attempt's journal names; [`EngineSource::get`] where it names none. Another one is never asked
    /// instead: it does not know the attempt's container, and would call a running one gone.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn of(&self, named: Option<&EngineChoice>) -> Result<Engine, DiscoverError> {
        let Some(named) = named.filter(|named| Some(*named) != self.choice.as_ref()) else { return self.get().await };
        if let (EngineChoice::Socket(path), Some(engine)) = (named, self.engine.get())
            && path.as_os_str() == engine.info().address.as_str()
        {
            return Ok(engine.clone());
        }
        discover::connect(Some(named), &self.around).await
    }

    /// The engine, `None` if none answers.
    pub async fn found(&self) -> Option<Engine> {
        self.get().await.ok()
    }
}

/// A look at an image of an engine that is not known yet.
pub(super) struct LookAhead {
    answered: watch::Receiver<Option<Reached>>,
    looking: AbortOnDropHandle<Option<Image>>,
}

impl LookAhead {
    /// What was seen there, if `engine` is the one; nothing if the image is not there or the look failed.
    pub(super) async fn of(self, engine: &Engine) -> Option<Image> {
        let is_it = self.answered.borrow().as_ref().is_some_and(|reached| reached.address() == engine.info().address);
        if is_it { self.looking.await.ok().flatten() } else { None }
    }
}

fn recall(file: &Path) -> Option<EngineInfo> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// A file that cannot be written costs time at the next command, and nothing else.
fn remember(file: &Path, info: &EngineInfo) {
    if recall(file).is_some_and(|known| known.describes_the_same(info)) {
        return;
    }
    let write = || {
        let mut fresh = tempfile::NamedTempFile::new_in(file.parent()?).ok()?;
        serde_json::to_writer(&mut fresh, info).ok()?;
        fresh.persist(file).ok()
    };
    if write().is_none() {
        tracing::debug!(file = %file.display(), "what the engine is could not be remembered");
    }
}
